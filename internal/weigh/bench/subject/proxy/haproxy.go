// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"text/template"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// Bounds of HAProxy.
const (
	// haproxyMaxThreads is MAX_THREADS of a 64-bit build.
	haproxyMaxThreads = 64
	// haproxySpareFiles are the files that it opens besides connections: listeners, a health check per server, event
	// polls and wake-up pipes of every thread.
	haproxySpareFiles = 500
	// haproxyDocumentMaxConn is the limit of a frontend in experiment 1.
	haproxyDocumentMaxConn = 10_000
)

// paramSplice reports whether HAProxy may have the kernel move bytes from socket to socket (option splice-auto), which
// pays for some traffic only.
const (
	paramSplice = "splice"
	spliceAuto  = "auto"
	spliceOff   = "off"
)

func haproxyVersion(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, "haproxy", "-v")
	return map[string]string{"haproxy": version}, err
}

// The open files that HAProxy needs for 100 connections.
const (
	// haproxyFiles: each needs one of its own and one towards a server.
	haproxyFiles = 200
	// haproxySpliceFiles: and every fourth the two ends of a pipe (maxpipes), where
	// it may splice.
	haproxySpliceFiles = 250
)

// haproxyMaxConn is how many clients' connections HAProxy can carry, of which a
// hundred need so many open files.
func haproxyMaxConn(limits probe.Limits, files uint64) int {
	spare := max(limits.OpenFiles, haproxySpareFiles) - haproxySpareFiles
	return int(min(spare*100/files, haproxyDocumentMaxConn))
}

func haproxyObstacle(params subject.Params, concurrency int, limits probe.Limits, files uint64) string {
	threads := params[ParamThreads].(int)
	if threads > limits.Cores {
		return fmt.Sprintf("%d threads: this machine has %d cores, and HAProxy's threads are no use beyond them",
			threads, limits.Cores)
	}
	if most := haproxyMaxConn(limits, files); concurrency > most {
		return fmt.Sprintf(
			"%d connections at once: HAProxy needs %s, and with the limit of %d open files here it can carry %d",
			concurrency, haproxyNeeds[files], limits.OpenFiles, most)
	}
	return ""
}

// haproxyNeeds says in words what open files connections need.
var haproxyNeeds = map[uint64]string{
	haproxyFiles:       "two open files for each",
	haproxySpliceFiles: "five open files for two",
}

//go:embed haproxy.cfg.tmpl
var haproxyTemplate string

//go:embed haproxytcp.cfg.tmpl
var haproxyTCPTemplate string

var (
	haproxyConfig    = template.Must(template.New("haproxy.cfg").Parse(haproxyTemplate))
	haproxyTCPConfig = template.Must(template.New("haproxytcp.cfg").Parse(haproxyTCPTemplate))
)

// haproxyValues are the templates' values.
type haproxyValues struct {
	MaxConn, Threads, LastCore int
	Services                   []proxyService
	// Certificate is the file of the certificate for its clients over TLS; empty for no TLS.
	Certificate string
	// Splice and Socket, of the Runtime API, are of the TCP mode only.
	Splice bool
	Socket string
}

func haproxyValuesOf(setup subject.Setup, threads, maxConn, cores int) haproxyValues {
	return haproxyValues{Certificate: setup.Certificate, MaxConn: maxConn, Threads: threads, LastCore: cores - 1,
		Services: proxyServices(setup)}
}

// tlsNote reports whether TLS ends here.
func (v haproxyValues) tlsNote() string {
	if v.Certificate == "" {
		return "no TLS listener"
	}
	return "it ends its clients' TLS, and asks servers without"
}

// startHAProxy runs HAProxy with a configuration, which note describes.
func startHAProxy(ctx context.Context, setup subject.Setup, params subject.Params, config *template.Template,
	files uint64, note func(haproxyValues) string) (*changingHAProxy, error) {
	limits, err := probe.LimitsOf(ctx, setup.Lab.Balancer)
	if err != nil {
		return nil, err
	}
	dir := setup.Lab.Balancer.Dir
	running := &changingHAProxy{path: filepath.Join(dir, "haproxy.cfg"), socket: filepath.Join(dir, "haproxy.sock")}
	values := haproxyValuesOf(setup, params[ParamThreads].(int), haproxyMaxConn(limits, files), limits.Cores)
	values.Splice, values.Socket = params[paramSplice] == spliceAuto, running.socket
	running.write = func(services []subject.Service) error {
		values.Services = endedServices(setup.With(services))
		return subject.WriteConfig(setup.Lab.Balancer, running.path, config, values)
	}
	if err := running.write(setup.Services); err != nil {
		return nil, err
	}
	// -db: in the foreground, as one process.
	running.runningProxy, err = startProxy(ctx, setup, runningProxy{cores: values.Threads, note: note(values)},
		"haproxy", "-db", "-f", running.path)
	if err != nil {
		return nil, err
	}
	return running, nil
}
