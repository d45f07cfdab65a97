// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// envoy is Envoy as a TCP and UDP proxy, configured for measurements as its documentation recommends ("What are best
// practices for benchmarking Envoy?").
type envoy struct{}

// Bounds of Envoy.
const (
	// envoyMaxThreads is more than the number of cores of any machine here.
	envoyMaxThreads = 64
	// envoySpareFiles is the number of files that Envoy opens besides connections.
	envoySpareFiles = 500
)

func (envoy) Name() string { return "envoy" }

func (envoy) Params() []subject.Param {
	return []subject.Param{{Name: ParamThreads, Check: subject.Positive(envoyMaxThreads)}}
}

func (envoy) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Containers: subject.Anywhere[bool]}
}

func (envoy) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.VersionOf(ctx, "envoy", "--version",
		"put its binary into a directory of PATH (Debian has none: envoyproxy.io)")
	// The rest of the version describes the build.
	version, _, _ = strings.Cut(version, "/")
	return map[string]string{"envoy": version}, err
}

// envoyConnections returns the number of clients' connections that Envoy can carry. Each needs an open file of its own
// and one for the connection to a server.
func envoyConnections(limits probe.Limits) int {
	return int(max(limits.OpenFiles, envoySpareFiles)-envoySpareFiles) / 2
}

func (envoy) SkipReason(params subject.Params, concurrency int, limits probe.Limits) string {
	threads := params[ParamThreads].(int)
	if threads > limits.Cores {
		return fmt.Sprintf("%d threads: this machine has %d cores, and Envoy's workers are no use beyond them", threads,
			limits.Cores)
	}
	if most := envoyConnections(limits); concurrency > most {
		return fmt.Sprintf(
			"%d connections at once: Envoy needs two open files for each, and with the limit of %d open files here it can carry %d",
			concurrency, limits.OpenFiles, most)
	}
	return ""
}

//go:embed envoy.yaml.tmpl
var envoyTemplate string

var envoyConfig = template.Must(template.New("envoy.yaml").Parse(envoyTemplate))

// envoyValues are the values for the template.
type envoyValues struct {
	MaxConnections int
	Services       []proxyService
}

func (envoy) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	limits, err := probe.ReadLimits()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(setup.Lab.Balancer.Dir, "envoy.yaml")
	values := envoyValues{MaxConnections: envoyConnections(limits), Services: proxyServices(setup)}
	if err := subject.WriteConfig(setup.Lab.Balancer, path, envoyConfig, values); err != nil {
		return nil, err
	}
	threads := params[ParamThreads].(int)
	proxy := runningProxy{cores: threads,
		note: "Envoy as a TCP proxy (UDP by its UDP proxy), round robin, a worker a thread, circuit breakers out of the way"}
	// There is one Envoy per namespace, and so none to take over from by a hot restart, which would share memory
	// between laboratories.
	running, err := startProxy(ctx, setup, proxy, "envoy", "-c", path, "--concurrency", strconv.Itoa(threads),
		"--disable-hot-restart", "--log-level", "warning")
	if err != nil {
		return nil, err
	}
	return running, nil
}
