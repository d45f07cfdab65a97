// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/lb"
)

// jeoulProxy is our own balancer in mode proxy, with what the first document has HAProxy do: its threads and cores, its
// session rate, a check of each server.
type jeoulProxy struct{ jeoul }

// newJeoulProxy is in TC, which has no part in it: packets for the VIP are the host's.
func newJeoulProxy() jeoulProxy { return jeoulProxy{jeoul{lb.ModeProxy, lb.HookTC}} }

func (jeoulProxy) Name() string   { return "jeoul-proxy" }
func (jeoulProxy) HTTPOnly() bool { return true }
func (jeoulProxy) terminatesTLS() {}

func (jeoulProxy) Params() []Param { return haproxyHTTP{}.Params() }

// Versions are those of the engine; the rest of the run is by this jeoul.
func (jeoulProxy) Versions(ctx context.Context) (map[string]string, error) {
	return haproxyVersion(ctx)
}

func (jeoulProxy) Obstacle(params Params, concurrency int, limits probe.Limits) string {
	return haproxyObstacle(params, concurrency, limits, haproxyFiles)
}

// The document's session rate, which no load here reaches.
const haproxySessionRate = 120_000

// hand has the proxy engine serve what a configuration has: as the document's HAProxy does, over HTTP.
func hand(file *config.Config, setup Setup, threads, cores int, maxConn uint32) {
	file.Proxy.Threads, file.Proxy.Connections = uint16(threads), maxConn
	file.Proxy.CPUMap = []string{fmt.Sprintf("1/1-%d 0-%d", threads, cores-1)}
	for i, of := range setup.Services {
		service := &file.Services[i]
		service.Scheduler, service.Limits.Rate = lb.RoundRobin, haproxySessionRate
		service.Limits.Burst = haproxySessionRate / 10 // the usual one, which is not written
		service.Proxy = &lb.Proxy{Speaks: lb.SpeaksHTTP, NoForwardedFor: true}
		if setup.Certificate != "" {
			service.Proxy.Certificates, service.Proxy.NoHTTP2 = []string{setup.Certificate}, true
			for j := range service.Backends {
				service.Backends[j].Port = of.PlainPort
			}
		}
		if of.Check == nil {
			service.Checks = lb.Checks{Panic: lb.DefaultPanic, OnDown: lb.UsualOnDown(lb.TCP), List: []lb.Check{{
				Type: lb.CheckTCP, Interval: lb.DefaultCheckInterval, Timeout: lb.DefaultCheckTimeout, Fall: lb.DefaultCheckFall, Rise: lb.DefaultCheckRise}}}
		}
	}
}

// Start runs it. The VIP is the daemon's to hold.
func (s jeoulProxy) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	limits, err := probe.LimitsOf(ctx, setup.Lab.Balancer)
	if err != nil {
		return nil, err
	}
	threads := params[paramThreads].(int)
	most := haproxyMaxConn(limits, haproxyFiles)
	running := &runningJeoulProxy{threads: threads, runningJeoul: &runningJeoul{subject: s.jeoul, setup: setup, params: params, weights: setup.Services[0].Weights}}
	running.hand = func(file *config.Config) { hand(file, setup, threads, limits.Cores, uint32(most)) }
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
	note := "jeoul in mode proxy, as the document configures HAProxy: threads, cores, session rate, and a check of each server every 2 s, which jeoul makes"
	if r.setup.Certificate != "" {
		note += "; it ends its clients' TLS, and asks servers without"
	}
	return []string{strings.TrimSpace(note)}
}

// Quiesce ends the daemon, and with it HAProxy and its connections.
func (r *runningJeoulProxy) Quiesce(ctx context.Context) error { return r.process.stop(ctx) }
