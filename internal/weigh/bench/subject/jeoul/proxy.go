// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/proxy"
)

// jeoulProxy is our own balancer in mode proxy. Its configuration is the output of `jeoul import haproxy` for that of
// [proxy.HAProxyHTTP], the first document's: its threads and cores, its session rate, its timeouts, a check of each
// server.
type jeoulProxy struct{ jeoul }

// newJeoulProxy uses TC, which has no part in this mode: packets for the VIP go to the host.
func newJeoulProxy() jeoulProxy { return jeoulProxy{jeoul{lb.ModeProxy, lb.HookTC}} }

func (jeoulProxy) Name() string { return "jeoul-proxy" }

// Can returns only the abilities of a proxy, and none of our packet modes.
func (jeoulProxy) Can() subject.Abilities { return subject.Abilities{HTTPOnly: true, EndsTLS: true} }

func (jeoulProxy) Params() []subject.Param { return proxy.HAProxyHTTP{}.Params() }

// Versions returns those of the proxy engine; everything else is this jeoul.
func (jeoulProxy) Versions(ctx context.Context) (map[string]string, error) {
	return proxy.HAProxyHTTP{}.Versions(ctx)
}

func (jeoulProxy) SkipReason(params subject.Params, concurrency int, limits probe.Limits) string {
	return proxy.HAProxyHTTP{}.SkipReason(params, concurrency, limits)
}

// imported returns the result of `jeoul import haproxy` for the configuration that HAProxy itself runs with.
func imported(setup subject.Setup, threads int, limits probe.Limits) (*config.Config, error) {
	fail := func(err error) (*config.Config, error) {
		return nil, fmt.Errorf("importing HAProxy's configuration: %w", err)
	}
	text, err := proxy.HTTPConfig(setup, threads, limits)
	if err != nil {
		return fail(err)
	}
	result, err := importer.Import("haproxy", draft.File{Name: "haproxy.cfg", Data: text},
		draft.Options{Interfaces: []string{"lo"}})
	if err != nil {
		return fail(err)
	}
	if result.Left > 0 {
		return fail(fmt.Errorf("%d of its lines cannot be imported: %v", result.Left, result.Remarks))
	}
	file, err := config.Parse("haproxy.cfg, imported", result.Text)
	if err == nil && len(file.Services) != 1 {
		err = fmt.Errorf("it has %d services, not 1", len(file.Services))
	}
	if err != nil {
		return fail(err)
	}
	return file, nil
}

// useImported makes the proxy engine serve the imported service, under the name of the configuration's service, and
// with its checks if the suite has some.
func useImported(file *config.Config, setup subject.Setup, threads int, limits probe.Limits) error {
	from, err := imported(setup, threads, limits)
	if err != nil {
		return err
	}
	service := from.Services[0]
	service.Name = file.Services[0].Name
	if setup.Services[0].Check != nil {
		service.Checks = file.Services[0].Checks
	}
	file.Proxy, file.Services = from.Proxy, []lb.Service{service}
	return nil
}

// Start starts the daemon, which holds the VIP itself.
func (s jeoulProxy) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	limits, err := probe.LimitsOf(ctx, setup.Lab.Balancer)
	if err != nil {
		return nil, err
	}
	threads := params[proxy.ParamThreads].(int)
	running := &runningJeoulProxy{threads: threads, runningJeoul: &runningJeoul{subject: s.jeoul, setup: setup,
		params: params, weights: setup.Services[0].Weights}}
	running.editConfig = func(file *config.Config, setup subject.Setup) error {
		return useImported(file, setup, threads, limits)
	}
	if err := s.start(ctx, running.runningJeoul); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

// runningJeoulProxy is a running jeoulProxy.
type runningJeoulProxy struct {
	*runningJeoul
	threads int
}

// Cores returns the number of HAProxy's threads.
func (r *runningJeoulProxy) Cores() float64 { return float64(r.threads) }

// Notes describe the configuration and its checks.
func (r *runningJeoulProxy) Notes() []string {
	note := "jeoul in mode proxy, with what `jeoul import haproxy` makes of HAProxy's configuration by hand; a check of each server every 2 s, which jeoul makes"
	if r.setup.Certificate != "" {
		note += "; it ends its clients' TLS, and asks servers without"
	}
	return []string{strings.TrimSpace(note)}
}

// Quiesce ends the daemon, which also ends HAProxy and its connections.
func (r *runningJeoulProxy) Quiesce(ctx context.Context) error { return r.process.Stop(ctx) }
