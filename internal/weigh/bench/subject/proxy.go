// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// runningProxy is a program on the balancer that accepts the clients'
// connections at the VIP and makes its own to the servers.
type runningProxy struct {
	setup   Setup
	process *program
	// path and args are those that its process is started with.
	path string
	args []string
	// retired are processes that it has replaced, which may still carry connections.
	retired []*program
	undo    undo
	// cores is how many it can use at most.
	cores int
	note  string
}

// startProxy runs a proxy's program and waits until it listens.
func startProxy(ctx context.Context, setup Setup, r runningProxy, path string, args ...string) (*runningProxy, error) {
	r.setup, r.path, r.args = setup, path, args
	err := r.undo.on(func(on bool) error { return ownVIP(setup.Lab, on) })
	if err == nil {
		err = r.Begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, r.Stop(context.WithoutCancel(ctx)))
	}
	return &r, nil
}

// listens returns when the proxy accepts connections of every service.
func (r *runningProxy) listens(ctx context.Context) error {
	for i := range r.setup.Services {
		if err := r.process.waitUntil(ctx, func() error {
			return probe.Listening(ctx, r.setup.Lab.Balancer, r.setup.vip(i))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *runningProxy) Target(i int) netip.AddrPort { return r.setup.vip(i) }
func (r *runningProxy) Cores() float64              { return float64(r.cores) }
func (r *runningProxy) Notes() []string             { return []string{r.note} }

// Quiesce ends the processes; the VIP goes on answering for what they left.
func (r *runningProxy) Quiesce(ctx context.Context) error {
	errs := []error{r.process.stop(ctx)}
	for _, p := range r.retired {
		errs = append(errs, p.stop(ctx))
	}
	return errors.Join(errs...)
}

func (r *runningProxy) Stop(ctx context.Context) error {
	return errors.Join(r.Quiesce(ctx), r.undo.all())
}

// Restart stops the proxy (SIGTERM) and starts another one, by the configuration as it is.
func (r *runningProxy) Restart(ctx context.Context) error {
	if err := r.End(ctx); err != nil {
		return err
	}
	return r.Begin(ctx)
}

// End ends the proxy's processes (SIGTERM).
func (r *runningProxy) End(ctx context.Context) error { return r.Quiesce(ctx) }

// Kill ends the proxy's processes, those included that only carry on with connections from
// before a reload.
func (r *runningProxy) Kill(ctx context.Context) error {
	for _, p := range append(r.retired, r.process) {
		if err := p.process.Kill(ctx); err != nil {
			return err
		}
	}
	r.retired = nil
	return nil
}

// Begin starts the proxy, and returns when it listens.
func (r *runningProxy) Begin(ctx context.Context) (err error) {
	r.process, err = startProgram(ctx, r.setup.Lab.Balancer, r.path, r.args...)
	if err != nil {
		return err
	}
	return r.listens(ctx)
}

// alive are the retired processes that still carry connections.
func (r *runningProxy) alive() []*program {
	return slices.DeleteFunc(r.retired, func(p *program) bool {
		select {
		case <-p.process.Done():
			return true
		default:
			return false
		}
	})
}

// paramThreads is how many threads, or workers, a proxy has.
const paramThreads = "threads"

// proxyService is a service as a proxy's configuration has it.
type proxyService struct {
	VIP     netip.AddrPort
	UDP     bool
	Servers []proxyServer
	// Check is nil where the servers are not checked.
	Check *Check
}

// TwiceServers is how many idle connections nginx shall keep.
func (s proxyService) TwiceServers() int { return 2 * len(s.Servers) }

type proxyServer struct {
	Name    string
	Address netip.AddrPort
	Weight  int
}

// endedServices are proxyServices of a proxy that ends TLS where there is any: it asks
// servers without.
func endedServices(setup Setup) []proxyService {
	services := proxyServices(setup)
	if setup.Certificate == "" {
		return services
	}
	for i, of := range setup.Services {
		for j, server := range services[i].Servers {
			services[i].Servers[j].Address = netip.AddrPortFrom(server.Address.Addr(), of.PlainPort)
		}
	}
	return services
}

func proxyServices(setup Setup) []proxyService {
	var services []proxyService
	for i, of := range setup.Services {
		service := proxyService{VIP: setup.vip(i), UDP: of.UDP, Check: of.Check}
		for _, server := range of.Servers {
			service.Servers = append(service.Servers, proxyServer{server.Name, netip.AddrPortFrom(server.IPv4, of.Port),
				of.Weight(server)})
		}
		services = append(services, service)
	}
	return services
}
