// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testdocs"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// documented returns a configuration of the documents whose loads the laboratory has, from the importer's cases, with
// other addresses.
func documented(t *testing.T, name string, addresses ...string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join(testdocs.Root(t), "internal/move/importer/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		if f.Name == "in" {
			return strings.NewReplacer(addresses...).Replace(string(f.Data))
		}
	}
	t.Fatalf("%s has no input", name)
	return ""
}

// importOn runs `jeoul import` on a host, which must not leave anything out, and returns the configuration.
func importOn(t *testing.T, host *lab.Host, dialect, text string, options ...string) entry {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(host.Dir, "imported")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var output, remarks cmdtest.SyncBuffer
	process, err := host.Start(t.Context(),
		lab.Command{Path: executable, Args: append([]string{"import", dialect, file}, options...),
			Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: &output, Stderr: &remarks})
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, remarks.String())
	}
	configuration := entry{}
	if err := yaml.Unmarshal([]byte(output.String()), &configuration); err != nil {
		t.Fatal(err)
	}
	return configuration
}

// configureImported adds the daemon's socket to an imported configuration, and keeps its interfaces.
func (b *balancer) configureImported(t *testing.T, configuration entry) {
	t.Helper()
	configuration["socket"] = b.socket
	if err := os.WriteFile(b.config, yamlOf(t, configuration), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestImportedL2DSR: the imported ipvsadm lines of the document on direct server return spread connections evenly over
// its 25 web servers, and with reachable thresholds, as many as those allow.
func TestImportedL2DSR(t *testing.T) {
	t.Parallel()
	const servers, each = 25, 3
	l := newLab(t, lab.Spec{Clients: 1, Servers: servers})
	addresses := []string{"192.168.16.100", l.VIP4.String()}
	for i, server := range l.Servers {
		addresses = append(addresses, fmt.Sprintf("172.16.0.%d:", 101+i), server.IPv4.String()+":")
		serveDSR(t, server, l.VIP4)
	}
	text := documented(t, "ipvsadm/document-l2dsr.txtar", addresses...)
	b := newBalancer(t, l.Balancer)
	b.configureImported(t, importOn(t, l.Balancer, "ipvsadm", text, "--interface", l.Balancer.Interface))
	b.start(t)
	t.Cleanup(func() { stop(t, b.daemon) })
	for _, backend := range b.status(t).Services[0].Backends {
		if backend.Upper != 35000 {
			t.Errorf("%s is full at %d connections", backend.Name, backend.Upper)
		}
	}
	to := netip.AddrPortFrom(l.VIP4, 80)
	s := &segment{l, b}
	if counts := s.askMany(t, "tcp", to, each*servers); !even(counts, servers, each) {
		t.Errorf("%d connections to %d servers: %v", each*servers, servers, counts)
	}
}

// even reports whether each of a number of servers has the same count.
func even(counts map[string]int, servers, each int) bool {
	for _, n := range counts {
		if n != each {
			return false
		}
	}
	return len(counts) == servers
}

// TestImportedThresholds: thresholds of ipvsadm (-x, -y) are in force: above them no connection is opened, and when one
// has ended the next goes to its backend.
func TestImportedThresholds(t *testing.T) {
	t.Parallel()
	const servers, upper = 5, 3
	l := newLab(t, lab.Spec{Clients: 1, Servers: servers})
	addresses := []string{"192.168.16.100", l.VIP4.String(), "35000", fmt.Sprint(upper)}
	for i, server := range l.Servers {
		addresses = append(addresses, fmt.Sprintf("172.16.0.%d:", 101+i), server.IPv4.String()+":")
		serveDSR(t, server, l.VIP4)
	}
	lines := strings.Split(documented(t, "ipvsadm/document-l2dsr.txtar", addresses...), "\n")
	b := newBalancer(t, l.Balancer)
	b.configureImported(t, importOn(t, l.Balancer, "ipvsadm", strings.Join(lines[:1+servers], "\n"), "--interface",
		l.Balancer.Interface))
	b.start(t)
	t.Cleanup(func() { stop(t, b.daemon) })
	to := netip.AddrPortFrom(l.VIP4, 80)
	held := map[string][]net.Conn{}
	for range servers * upper {
		connection := dial(t, l.Clients[0], "tcp", to)
		server, _, err := ask(connection)
		if err != nil {
			t.Fatal(err)
		}
		held[server] = append(held[server], connection)
	}
	for server, connections := range held {
		if len(connections) != upper {
			t.Errorf("%s has %d connections, and its thresholds are %d", server, len(connections), upper)
		}
	}
	if connection, err := dialFor(l.Clients[0], to, 300*time.Millisecond); err == nil {
		connection.Close()
		t.Error("a connection was opened although all backends are full")
	}
	var left string
	for server, connections := range held {
		left = server
		connections[0].Close()
		break
	}
	testenv.Eventually(t, e2e.WaitLimit, "the backend whose connection ended takes another", func() bool {
		connection, err := dialFor(l.Clients[0], to, time.Second)
		if err != nil {
			return false
		}
		t.Cleanup(func() { connection.Close() })
		server, _, err := ask(connection)
		if err == nil && server != left {
			t.Fatalf("%s got it, and %s has room", server, left)
		}
		return err == nil
	})
}

// dialFor connects from a client within a time limit.
func dialFor(client *lab.Host, to netip.AddrPort, bound time.Duration) (connection net.Conn, err error) {
	err = client.Do(func() (err error) {
		connection, err = net.DialTimeout("tcp", to.String(), bound)
		return err
	})
	return connection, err
}

// dialWhileRunning is dialFor with a limit of the time in which this process runs: time in which it is stopped counts
// for next to nothing.
func dialWhileRunning(client *lab.Host, to netip.AddrPort, bound time.Duration) (connection net.Conn, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		const parts = 20
		tick := time.NewTicker(bound / parts) // a ticker drops ticks while the process is stopped
		defer tick.Stop()
		defer cancel()
		for range parts {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	err = client.Do(func() (err error) {
		connection, err = new(net.Dialer).DialContext(ctx, "tcp", to.String())
		return err
	})
	return connection, err
}

// serveDSR makes a server a web server for direct server return.
func serveDSR(t *testing.T, server *lab.Host, vip netip.Addr) {
	t.Helper()
	var a *agent.Agent
	err := server.Do(func() (err error) {
		if a, err = agent.Start(agent.Options{VIPs: []netip.Addr{vip}, Modes: []lb.Mode{lb.L2DSR},
			Dir: filepath.Join(server.Dir, "state")}); err != nil {
			return err
		}
		listener, err := net.Listen("tcp4", ":80")
		if err != nil {
			return err
		}
		t.Cleanup(func() { listener.Close() })
		go serveTCP(listener, server.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Do(a.Close); err != nil && !errors.Is(err, lab.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestImportedDNSContainers: with the imported iptables rules of the document on DNS containers, BIND in three
// containers of the balancer's host answers in turns, and carries the document's load.
func TestImportedDNSContainers(t *testing.T) {
	t.Parallel()
	const servers, each = 3, 8
	dnsperf := testenv.Program(t, "dnsperf")
	l := newLab(t, lab.Spec{Clients: 1, Servers: servers, Containers: true})
	addresses := []string{"enp1s0f0", l.Balancer.Interface}
	for i, server := range l.Servers {
		addresses = append(addresses, fmt.Sprintf("172.17.0.%d:", 5+i), server.IPv4.String()+":")
		e2e.StartDNS(t, server, 53)
	}
	text := documented(t, "iptables/document-dns.txtar", addresses...)
	b := newBalancer(t, l.Balancer)
	b.configureImported(t, importOn(t, l.Balancer, "iptables", text, "--vip", l.VIP4.String(),
		"--interface", l.Balancer.Interface, "--interface", l.Balancer.Bridge))
	b.start(t)
	t.Cleanup(func() { stop(t, b.daemon) })

	to, counts := netip.AddrPortFrom(l.VIP4, 53), map[string]int{}
	for range servers * each {
		asker, err := e2e.NewAsker(l.Clients[0], to)
		if err != nil {
			t.Fatal(err)
		}
		defer asker.Close()
		server, err := asker.Ask(e2e.NewQuery(e2e.Small, 0), e2e.Small)
		if err != nil {
			t.Fatal(err)
		}
		counts[server]++
	}
	if !even(counts, servers, each) {
		t.Errorf("%d clients asked %d containers: %v", servers*each, servers, counts)
	}
	before := b.status(t).Services[0].Backends
	domain := filepath.Join(l.Clients[0].Dir, "domain")
	if err := os.WriteFile(domain, []byte("a.small.lab.test TXT\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var output cmdtest.SyncBuffer
	process, err := l.Clients[0].Start(context.WithoutCancel(t.Context()),
		lab.Command{Path: dnsperf, Stdout: &output, Stderr: &output,
			Args: []string{"-s", l.VIP4.String(), "-d", domain, "-l", "1", "-c", "3", "-Q", "300"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil || !strings.Contains(output.String(), "Queries lost:         0 ") {
		t.Errorf("dnsperf: %v\n%s", err, output.String())
	}
	for i, backend := range b.status(t).Services[0].Backends {
		if backend.Packets == before[i].Packets {
			t.Errorf("%s got no query of dnsperf's", backend.Name)
		}
	}
}
