// SPDX-License-Identifier: Apache-2.0

package subject

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
)

// jeoulProxy is our own balancer in mode proxy, with what `jeoul import haproxy` makes of the configuration that
// haproxyHTTP has, the first document's: its threads and cores, its session rate, its times, a check of each server.
type jeoulProxy struct{ jeoul }

// newJeoulProxy is in TC, which has no part in it: packets for the VIP are the host's.
func newJeoulProxy() jeoulProxy { return jeoulProxy{jeoul{lb.ModeProxy, lb.HookTC}} }

func (jeoulProxy) Name() string   { return "jeoul-proxy" }
func (jeoulProxy) HTTPOnly() bool { return true }
func (jeoulProxy) terminatesTLS() {}

// can nothing of what our packet modes can.
func (jeoulProxy) can() abilities { return abilities{} }

func (jeoulProxy) Params() []Param { return haproxyHTTP{}.Params() }

// Versions are those of the engine; the rest of the run is by this jeoul.
func (jeoulProxy) Versions(ctx context.Context) (map[string]string, error) {
	return haproxyVersion(ctx)
}

func (jeoulProxy) Obstacle(params Params, concurrency int, limits probe.Limits) string {
	return haproxyObstacle(params, concurrency, limits, haproxyFiles)
}

// imported is what `jeoul import haproxy` makes of the configuration that HAProxy has by hand.
func imported(values haproxyValues) (*config.Config, error) {
	fail := func(err error) (*config.Config, error) {
		return nil, fmt.Errorf("importing HAProxy's configuration: %w", err)
	}
	text, err := render(haproxyConfig, values)
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

// hand has the proxy engine serve what is imported, under the name and with the checks (where a suite has them made) of
// a configuration.
func hand(file *config.Config, setup Setup, values haproxyValues) error {
	values.Services = endedServices(setup)
	from, err := imported(values)
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

// Start runs it. The VIP is the daemon's to hold.
func (s jeoulProxy) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	limits, err := probe.LimitsOf(ctx, setup.Lab.Balancer)
	if err != nil {
		return nil, err
	}
	threads := params[paramThreads].(int)
	values := haproxyValuesOf(setup, threads, haproxyMaxConn(limits, haproxyFiles), limits.Cores)
	running := &runningJeoulProxy{threads: threads, runningJeoul: &runningJeoul{subject: s.jeoul, setup: setup,
		params: params, weights: setup.Services[0].Weights}}
	running.hand = func(file *config.Config, setup Setup) error { return hand(file, setup, values) }
	if err := s.start(ctx, running.runningJeoul); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

// runningJeoulProxy is it.
type runningJeoulProxy struct {
	*runningJeoul
	threads int
}

// Cores are HAProxy's.
func (r *runningJeoulProxy) Cores() float64 { return float64(r.threads) }

// Notes say what it is configured with.
func (r *runningJeoulProxy) Notes() []string {
	note := "jeoul in mode proxy, with what `jeoul import haproxy` makes of HAProxy's configuration by hand; a check of each server every 2 s, which jeoul makes"
	if r.setup.Certificate != "" {
		note += "; it ends its clients' TLS, and asks servers without"
	}
	return []string{strings.TrimSpace(note)}
}

// Quiesce ends the daemon, and with it HAProxy and its connections.
func (r *runningJeoulProxy) Quiesce(ctx context.Context) error { return r.process.stop(ctx) }
