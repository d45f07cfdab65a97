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
	// haproxySpareFiles is the number of files that HAProxy opens besides connections: listeners, a health check per
	// server, event polls and wake-up pipes of every thread.
	haproxySpareFiles = 500
	// haproxyDocumentMaxConn is the connection limit of a frontend in experiment 1.
	haproxyDocumentMaxConn = 10_000
)

// paramSplice sets whether HAProxy may let the kernel move bytes from socket to socket (option splice-auto), which is
// only faster for some traffic.
const (
	paramSplice = "splice"
	spliceAuto  = "auto"
	spliceOff   = "off"
)

func haproxyVersion(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, "haproxy", "-v")
	return map[string]string{"haproxy": version}, err
}

// The numbers of open files that HAProxy needs for 100 connections.
const (
	// haproxyFiles: each connection needs a file of its own and one for the connection to a server.
	haproxyFiles = 200
	// haproxySpliceFiles: if HAProxy may splice, every fourth connection also needs the two ends of a pipe (maxpipes).
	haproxySpliceFiles = 250
)

// haproxyMaxConn returns the number of clients' connections that HAProxy can carry. files is the number of open files
// for a hundred of them.
func haproxyMaxConn(limits probe.Limits, files uint64) int {
	spare := max(limits.OpenFiles, haproxySpareFiles) - haproxySpareFiles
	return int(min(spare*100/files, haproxyDocumentMaxConn))
}

func haproxySkipReason(params subject.Params, concurrency int, limits probe.Limits, files uint64) string {
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

// haproxyNeeds describes the open files that connections need.
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

// haproxyValues are the values for the templates.
type haproxyValues struct {
	MaxConn, Threads, LastCore int
	Services                   []proxyService
	// Certificate is the path of the certificate for clients over TLS; empty means no TLS.
	Certificate string
	// Splice and Socket, the socket of the Runtime API, belong to the TCP mode only.
	Splice bool
	Socket string
}

func haproxyValuesOf(setup subject.Setup, threads, maxConn, cores int) haproxyValues {
	return haproxyValues{Certificate: setup.Certificate, MaxConn: maxConn, Threads: threads, LastCore: cores - 1,
		Services: proxyServices(setup)}
}

// tlsNote describes whether HAProxy terminates TLS.
func (v haproxyValues) tlsNote() string {
	if v.Certificate == "" {
		return "no TLS listener"
	}
	return "it ends its clients' TLS, and asks servers without"
}

// startHAProxy runs HAProxy with a configuration that note describes.
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
		values.Services = terminatedServices(setup.With(services))
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
