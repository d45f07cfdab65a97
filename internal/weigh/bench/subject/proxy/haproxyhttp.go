// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// HAProxyHTTP is HAProxy in HTTP mode, as the first document configured it.
type HAProxyHTTP struct{}

// Name is the name in suites and results.
func (HAProxyHTTP) Name() string { return "haproxy-http" }

// Params returns the number of threads.
func (HAProxyHTTP) Params() []subject.Param {
	return []subject.Param{{Name: ParamThreads, Check: subject.Positive(haproxyMaxThreads)}}
}

// Can returns the subject's abilities.
func (HAProxyHTTP) Can() subject.Abilities {
	return subject.Abilities{HTTPOnly: true, EndsTLS: true, Machines: subject.Anywhere[*lab.Lab],
		Containers: subject.Anywhere[bool]}
}

// Versions returns the version of haproxy.
func (HAProxyHTTP) Versions(ctx context.Context) (map[string]string, error) {
	return haproxyVersion(ctx)
}

// SkipReason names a limit of open files or of cores that HAProxy would exceed.
func (HAProxyHTTP) SkipReason(params subject.Params, concurrency int, limits probe.Limits) string {
	return haproxySkipReason(params, concurrency, limits, haproxyFiles)
}

// Start runs HAProxy on the balancer.
func (HAProxyHTTP) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	running, err := startHAProxy(ctx, setup, params, haproxyConfig, haproxyFiles, func(values haproxyValues) string {
		return strings.Join([]string{
			fmt.Sprintf("HAProxy as in the document, but maxconn %d (document: 500000 in all, 10000 a frontend) for the limit of open files", values.MaxConn),
			fmt.Sprintf("cpu-map to cores 0-%d (document: 0-23)", values.LastCore),
			values.tlsNote() + ", in the foreground; it logs to a port where nothing listens",
			"its health checks, one a server every 2 s, are among the backends' connections",
		}, "; ")
	})
	if err != nil {
		return nil, err
	}
	return running.runningProxy, nil
}

// HTTPConfig returns the hand-written configuration of [HAProxyHTTP] for a set-up, for a host with these limits.
func HTTPConfig(setup subject.Setup, threads int, limits probe.Limits) ([]byte, error) {
	values := haproxyValuesOf(setup, threads, haproxyMaxConn(limits, haproxyFiles), limits.Cores)
	values.Services = terminatedServices(setup)
	return subject.Render(haproxyConfig, values)
}
