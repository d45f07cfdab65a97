// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"text/template"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// nginxStream is nginx as a TCP proxy.
type nginxStream struct{}

// Bounds of nginx.
const (
	// nginxMaxWorkers is more than the number of cores of any machine here.
	nginxMaxWorkers = 64
	// nginxSpareFiles is the number of files that a worker opens besides connections.
	nginxSpareFiles = 200
)

func (nginxStream) Name() string { return "nginx-stream" }

// Params returns the number of threads, which are processes of nginx.
func (nginxStream) Params() []subject.Param {
	return []subject.Param{{Name: ParamThreads, Check: subject.Positive(nginxMaxWorkers)}}
}

func (nginxStream) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Changes: true, Restarts: true, Machines: subject.Anywhere[*lab.Lab],
		Containers: subject.Anywhere[bool]}
}

func (nginxStream) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, "nginx", "-v")
	if err == nil {
		_, err = streamModule(ctx)
	}
	return map[string]string{"nginx": version}, err
}

// nginxConnections returns the number of connections that one worker can hold. A connection through the proxy counts as
// two.
func nginxConnections(limits probe.Limits) int {
	return int(max(limits.OpenFiles, nginxSpareFiles+2) - nginxSpareFiles)
}

func (nginxStream) SkipReason(params subject.Params, concurrency int, limits probe.Limits) string {
	return nginxSkipReason(params, concurrency, limits)
}

func nginxSkipReason(params subject.Params, concurrency int, limits probe.Limits) string {
	threads := params[ParamThreads].(int)
	if threads > limits.Cores {
		return fmt.Sprintf("%d workers: this machine has %d cores, and nginx's workers are no use beyond them", threads,
			limits.Cores)
	}
	// One worker may accept all connections.
	if most := nginxConnections(limits) / 2; concurrency > most {
		return fmt.Sprintf(
			"%d connections at once: nginx needs two open files for each, and with the limit of %d open files here a worker can carry %d",
			concurrency, limits.OpenFiles, most)
	}
	return ""
}

var (
	// nginxStatic matches if the module is built in, nginxModules the directory of other modules.
	nginxStatic  = regexp.MustCompile(`--with-stream(\s|$)`)
	nginxModules = regexp.MustCompile(`--modules-path=(\S+)`)
)

// streamModule returns the file of nginx's stream module; empty if it is built in. The error wraps
// probe.ErrNotInstalled if there is no such module.
func streamModule(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, "nginx", "-V").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("asking nginx how it was built: %w", err)
	}
	if nginxStatic.Match(output) {
		return "", nil
	}
	if path := nginxModules.FindSubmatch(output); path != nil {
		module := filepath.Join(string(path[1]), "ngx_stream_module.so")
		if _, err := os.Stat(module); err == nil {
			return module, nil
		}
	}
	return "", fmt.Errorf(
		"nginx's stream module is %w: install it from your distribution (Debian: libnginx-mod-stream)",
		probe.ErrNotInstalled)
}

//go:embed nginxstream.conf.tmpl
var nginxStreamTemplate string

var nginxStreamConfig = template.Must(template.New("nginx-stream.conf").Parse(nginxStreamTemplate))

// nginxStreamValues are the values for the template.
type nginxStreamValues struct {
	Module, Dir                           string
	Threads, OpenFiles, WorkerConnections int
	Services                              []proxyService
}

func (nginxStream) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	limits, err := probe.LimitsOf(ctx, setup.Lab.Balancer)
	if err != nil {
		return nil, err
	}
	module, err := streamModuleTask.On(ctx, setup.Lab.Balancer, struct{}{})
	if err != nil {
		return nil, err
	}
	dir := setup.Lab.Balancer.Dir
	values := nginxStreamValues{
		Module: module, Dir: dir, Threads: params[ParamThreads].(int),
		OpenFiles: int(limits.OpenFiles), WorkerConnections: nginxConnections(limits),
	}
	path := filepath.Join(dir, "nginx-stream.conf")
	running := &changingNginx{workers: values.Threads, write: func(services []subject.Service) error {
		values.Services = proxyServices(setup.With(services))
		return subject.WriteConfig(setup.Lab.Balancer, path, nginxStreamConfig, values)
	}}
	if err := running.write(setup.Services); err != nil {
		return nil, err
	}
	proxy := runningProxy{cores: values.Threads,
		note: "nginx as a TCP proxy (stream), round robin, a worker a thread, its own defaults"}
	// -e: without it, nginx would write to the system's log until it has read the configuration.
	running.runningProxy, err = startProxy(ctx, setup, proxy, "nginx", "-e", filepath.Join(dir, "nginx-stream.log"),
		"-p", dir, "-c", path)
	if err != nil {
		return nil, err
	}
	return running, nil
}

// streamModuleTask returns the file of the module on a machine.
var streamModuleTask = lab.NewTask("nginx-stream-module",
	func(ctx context.Context, _ *lab.Host, _ struct{}) (string, error) {
		return streamModule(ctx)
	})
