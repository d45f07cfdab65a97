// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	_ "embed"
	"path/filepath"
	"text/template"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// nginxHTTP is nginx as an HTTP proxy.
type nginxHTTP struct{}

func (nginxHTTP) Name() string            { return "nginx-http" }
func (nginxHTTP) Params() []subject.Param { return nginxStream{}.Params() }

func (nginxHTTP) Can() subject.Abilities {
	return subject.Abilities{HTTPOnly: true, EndsTLS: true, Machines: subject.Anywhere[*lab.Lab],
		Containers: subject.Anywhere[bool]}
}

func (nginxHTTP) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, "nginx", "-v")
	return map[string]string{"nginx": version}, err
}

func (nginxHTTP) SkipReason(params subject.Params, concurrency int, limits probe.Limits) string {
	return nginxSkipReason(params, concurrency, limits)
}

//go:embed nginxhttp.conf.tmpl
var nginxHTTPTemplate string

var nginxHTTPConfig = template.Must(template.New("nginx-http.conf").Parse(nginxHTTPTemplate))

// nginxHTTPValues are the values for the template.
type nginxHTTPValues struct {
	Dir                                   string
	Threads, OpenFiles, WorkerConnections int
	Services                              []proxyService
	// Certificate is the path of the certificate for clients over TLS; empty means no TLS.
	Certificate string
}

func (nginxHTTP) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	limits, err := probe.LimitsOf(ctx, setup.Lab.Balancer)
	if err != nil {
		return nil, err
	}
	dir := setup.Lab.Balancer.Dir
	values := nginxHTTPValues{
		Dir: dir, Threads: params[ParamThreads].(int),
		OpenFiles: int(limits.OpenFiles), WorkerConnections: nginxConnections(limits),
		Services:    terminatedServices(setup),
		Certificate: setup.Certificate,
	}
	path := filepath.Join(dir, "nginx-http.conf")
	if err := subject.WriteConfig(setup.Lab.Balancer, path, nginxHTTPConfig, values); err != nil {
		return nil, err
	}
	proxy := runningProxy{cores: values.Threads,
		note: "nginx as an HTTP proxy, round robin, a worker a thread, connections to the servers kept open " +
			"(keepalive, two a server and worker), no access log; else its own defaults"}
	// -e: without it, nginx would write to the system's log until it has read the configuration.
	running, err := startProxy(ctx, setup, proxy, "nginx", "-e", filepath.Join(dir, "nginx-http.log"), "-p", dir,
		"-c", path)
	if err != nil {
		return nil, err
	}
	return running, nil
}
