// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/move/exporter"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// A change experiment may have two tiers: the subject balances proxies, which are HAProxy on the first of the servers,
// and the proxies balance the other servers. A server answers with the name of the proxy that a connection comes
// through, so that the connection counts as that proxy's.

// proxyEvents are the events that proxies support. The others need a server's own process.
var proxyEvents = []string{"add", "remove", "drain", "reweigh", "flap", "reload", "undo", "quiet", "restart", "upgrade",
	"kill", "stop", "silent", "reset", "share"}

// proxied splits the servers of a laboratory into the proxies and the servers that the proxies balance.
func proxied(f bench.Form, servers []*lab.Host) (proxies, behind []*lab.Host) {
	for _, l := range f.Loads {
		if n := settingsOf(l).Proxies; n > 0 {
			return servers[:n], servers[n:]
		}
	}
	return nil, servers
}

// checkProxied checks the values for the traffic that proxies carry.
func (c Changes) checkProxied(happen []string, at bench.Path, fail bench.FailFunc) {
	if c.Proxies == 0 {
		if c.QueriesPerSecond < 1 || c.QueriesPerSecond > 10_000 {
			fail(at.To("changes", "queries_per_second"), "%d is not possible; use 1 to %d", c.QueriesPerSecond, 10_000)
		}
		return
	}
	if c.QueriesPerSecond != 0 || c.NumberedPerSecond != 0 {
		fail(at.To("changes", "proxies"), "HAProxy carries no UDP; remove queries_per_second and numbered_per_second")
	}
	for _, name := range happen {
		if !slices.Contains(proxyEvents, name) {
			fail(at.To("changes", "events"), "%s happens to servers, not to proxies before them; use some of %s", name,
				strings.Join(proxyEvents, ", "))
		}
	}
}

// checkBackends checks that there are enough servers for the events, and with proxies some servers behind them.
func checkBackends(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	backends, word := form.Lab.Servers, "lab has"
	if n := settingsOf(l).Proxies; n != 0 {
		backends, word = n, "proxies says"
		if n < 0 || n >= form.Lab.Servers {
			fail(at.To("changes", "proxies"),
				"%d is not possible: of the lab's %d servers at least one stands behind the proxies", n,
				form.Lab.Servers)
		}
	}
	if backends < changeServers {
		fail(at, "change needs at least %d servers, for one each comes, leaves, drains, weighs more, flaps and falls silent; %s %d", changeServers, word, backends)
	}
	for _, other := range form.Loads {
		if other.Kind == l.Kind && settingsOf(other).Proxies != settingsOf(l).Proxies {
			fail(at.To("changes", "proxies"),
				"%d, and another load has %d; the servers of a laboratory are the same for all", settingsOf(l).Proxies,
				settingsOf(other).Proxies)
			break
		}
	}
}

// proxyNotes describe the proxies in front of the servers.
func (c Changes) proxyNotes() []string {
	if c.Proxies == 0 {
		return nil
	}
	return []string{fmt.Sprintf(
		"the backends are proxies: HAProxy, configured by `jeoul export haproxy`, on each of the first %d servers, before the others by turns; a connection counts as that of the proxy that it goes through", c.Proxies)}
}

// startProxies starts HAProxy on some hosts, in front of the servers. It is stopped with the laboratory.
func startProxies(ctx context.Context, r *bench.Runner, proxies, servers []*lab.Host) error {
	if len(proxies) == 0 {
		return nil
	}
	version, err := proxyProgram.Version(ctx)
	if err != nil {
		return err
	}
	r.Results.Environment.Versions[proxyProgram.Name] = version
	for _, host := range proxies {
		process, err := startProxy(ctx, r.Lab, host, servers)
		if err != nil {
			return fmt.Errorf("starting the proxy on %s: %w", host.Name, err)
		}
		r.Alive = append(r.Alive, func() error { return proxyRunning(process) })
	}
	return nil
}

// proxyProgram is the program of proxies, with the flag that prints its version.
var proxyProgram = bench.Program{Name: "haproxy", Flag: "-v"}

func startProxy(ctx context.Context, l *lab.Lab, host *lab.Host, servers []*lab.Host) (*lab.Process, error) {
	text, err := proxyConfiguration(l, host, servers)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(host.Dir, "proxy.cfg")
	// The subject adds the VIP to the host later if its mode needs the VIP there.
	bindEarly := func() error { return sysctl.Write("net.ipv4.ip_nonlocal_bind", "1") }
	if err := errors.Join(host.WriteFile(path, text), host.Do(bindEarly)); err != nil {
		return nil, err
	}
	return host.Start(context.WithoutCancel(ctx),
		lab.Command{Path: proxyProgram.Name, Args: []string{"-db", "-f", path}})
}

// proxyConfiguration returns HAProxy's configuration on a host. HAProxy listens at the VIP, for subjects that leave it
// in the packets, and at the host's own address.
func proxyConfiguration(l *lab.Lab, host *lab.Host, servers []*lab.Host) ([]byte, error) {
	cfg := config.New()
	cfg.Interfaces = []string{host.Interface}
	for _, at := range []netip.Addr{l.VIP4, host.IPv4} {
		s := lb.Service{Name: at.String(), VIP: at, Port: changePort, Protocol: lb.TCP, Mode: lb.ModeProxy,
			Scheduler: lb.RoundRobin}
		for _, server := range servers {
			s.Backends = append(s.Backends, lb.Backend{Name: server.Name, Address: server.IPv4, Port: changePort,
				Weight: 1})
		}
		cfg.Services = append(cfg.Services, s)
	}
	text, err := config.Write(cfg)
	if err != nil {
		return nil, err
	}
	result, err := exporter.Export("haproxy", config.Source{Name: "the proxies' configuration", Data: text})
	if err != nil {
		return nil, err
	}
	return result.Text, nil
}

// proxyRunning returns nil while a proxy runs.
func proxyRunning(process *lab.Process) error {
	select {
	case <-process.Done():
		return fmt.Errorf("a proxy ended by itself: %w", errors.Join(process.Wait(), errProxyGone))
	default:
		return nil
	}
}

// errProxyGone is the error for a proxy that ended without an error.
var errProxyGone = errors.New("its clients have no server")
