// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// runningProxy is a program on the balancer that accepts the clients' connections at the VIP and opens its own
// connections to the servers.
type runningProxy struct {
	setup   subject.Setup
	process *subject.Program
	// path and args are the command with which its process is started.
	path string
	args []string
	// retired are the replaced processes, which may still carry connections.
	retired []*subject.Program
	undo    subject.Undo
	// cores is the maximum number of cores that the proxy can use.
	cores int
	note  string
}

// startProxy runs a proxy's program and waits until it listens.
func startProxy(ctx context.Context, setup subject.Setup, r runningProxy, path string,
	args ...string) (*runningProxy, error) {
	r.setup, r.path, r.args = setup, path, args
	err := r.undo.On(func(on bool) error { return subject.OwnVIP(setup.Lab, on) })
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
		if err := r.process.WaitUntil(ctx, func() error {
			return probe.Listening(ctx, r.setup.Lab.Balancer, r.setup.VIP(i))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *runningProxy) Target(i int) netip.AddrPort { return r.setup.VIP(i) }
func (r *runningProxy) Cores() float64              { return float64(r.cores) }
func (r *runningProxy) Notes() []string             { return []string{r.note} }

// Quiesce ends the processes. The VIP stays, so that the kernel answers packets for their connections.
func (r *runningProxy) Quiesce(ctx context.Context) error {
	errs := []error{r.process.Stop(ctx)}
	for _, p := range r.retired {
		errs = append(errs, p.Stop(ctx))
	}
	return errors.Join(errs...)
}

func (r *runningProxy) Stop(ctx context.Context) error {
	return errors.Join(r.Quiesce(ctx), r.undo.All())
}

// Restart stops the proxy (SIGTERM) and starts another one with the present configuration.
func (r *runningProxy) Restart(ctx context.Context) error {
	if err := r.End(ctx); err != nil {
		return err
	}
	return r.Begin(ctx)
}

// End ends the proxy's processes (SIGTERM).
func (r *runningProxy) End(ctx context.Context) error { return r.Quiesce(ctx) }

// Kill ends the proxy's processes, including those that only continue connections from before a reload.
func (r *runningProxy) Kill(ctx context.Context) error {
	for _, p := range append(r.retired, r.process) {
		if err := p.Process.Kill(ctx); err != nil {
			return err
		}
	}
	r.retired = nil
	return nil
}

// Begin starts the proxy, and returns when it listens.
func (r *runningProxy) Begin(ctx context.Context) (err error) {
	r.process, err = subject.StartProgram(ctx, r.setup.Lab.Balancer, r.path, r.args...)
	if err != nil {
		return err
	}
	return r.listens(ctx)
}

// alive returns the retired processes that still carry connections.
func (r *runningProxy) alive() []*subject.Program {
	return slices.DeleteFunc(r.retired, func(p *subject.Program) bool { return !p.Runs() })
}

// ParamThreads is the number of threads, or workers, of a proxy.
const ParamThreads = "threads"

// proxyService is a service in the form of a proxy's configuration.
type proxyService struct {
	VIP     netip.AddrPort
	UDP     bool
	Servers []proxyServer
	// Check is nil if the servers are not checked.
	Check *subject.Check
}

// TwiceServers is the number of idle connections that nginx keeps.
func (s proxyService) TwiceServers() int { return 2 * len(s.Servers) }

type proxyServer struct {
	Name    string
	Address netip.AddrPort
	Weight  int
}

// terminatedServices returns the services for a proxy that terminates TLS if there is any. Its connections to servers
// are without TLS.
func terminatedServices(setup subject.Setup) []proxyService {
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

func proxyServices(setup subject.Setup) []proxyService {
	var services []proxyService
	for i, of := range setup.Services {
		service := proxyService{VIP: setup.VIP(i), UDP: of.UDP, Check: of.Check}
		for _, server := range of.Servers {
			service.Servers = append(service.Servers, proxyServer{server.Name, netip.AddrPortFrom(server.IPv4, of.Port),
				of.Weight(server)})
		}
		services = append(services, service)
	}
	return services
}

// Remembered counts the balancer's sockets that are not listening: those of clients, including half-open ones, and
// those to servers.
func (r *runningProxy) Remembered(context.Context) (subject.Remembered, error) {
	count, err := r.setup.Lab.Balancer.Sockets()
	if err != nil {
		return subject.Remembered{}, err
	}
	return subject.Remembered{What: "TCP sockets on the balancer, half-open and closing ones included",
		Flows: uint64(count.Open())}, nil
}
