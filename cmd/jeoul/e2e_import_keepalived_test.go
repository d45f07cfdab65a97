// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestKeepalivedImportsServeTheSame is TestImportsServeTheSame for keepalived, which configures IPVS of the running
// kernel; so `make test-import` runs it in a virtual machine.
func TestKeepalivedImportsServeTheSame(t *testing.T) {
	testenv.Root(t)
	all := os.Getenv("JEOUL_TEST_IMPORTS") != ""
	if _, err := os.Stat("/proc/thread-self/net/ip_vs"); err != nil {
		if all {
			t.Fatal(err)
		}
		t.Skip("this kernel has no IPVS: run `make test-import`, which has one in a virtual machine")
	}
	requests := 1000
	cases := sameCases(t, addressPlan(t), "keepalived")
	if all && len(cases) < 25 {
		t.Errorf("%d configurations", len(cases))
	}
	if !all {
		cases, requests = cases[:1], 50
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			// IPVS remembers connections and clients beyond its services, so each case has its own laboratory, and its
			// configuration has the addresses of that one: containers have others than servers.
			l := c.segment(t)
			sameCases(t, l, "keepalived")[i].compare(t, l, requests)
		})
	}
}

// addressPlan is a laboratory without hosts, which only has the address plan.
func addressPlan(t *testing.T) *lab.Lab {
	t.Helper()
	return newLab(t, lab.Spec{Clients: 2, Servers: 4})
}

// segment builds the laboratory of a case: servers that have the VIPs and answer clients themselves, or, for NAT,
// servers behind the balancer.
func (c sameCase) segment(t *testing.T) *lab.Lab {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 4, Containers: c.containers})
	for i, server := range l.Servers {
		addresses := []netip.Addr{server.IPv4, server.IPv6}
		if !c.containers {
			vips := []netip.Addr{l.VIP4, l.VIP4.Next(), l.VIP6}
			addVIPs(t, server, vips)
			addresses = append(addresses, vips...)
		}
		label := fmt.Sprintf("S%d", i+1)
		if err := server.Do(func() error { return serveAll(t, server.Name, label, addresses) }); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// addVIPs makes a server accept packets for VIPs, both unchanged and in tunnels.
func addVIPs(t *testing.T, server *lab.Host, vips []netip.Addr) {
	t.Helper()
	var a *agent.Agent
	if err := server.Do(func() (err error) {
		a, err = agent.Start(agent.Options{VIPs: vips, Modes: []lb.Mode{lb.L2DSR, lb.IPIP},
			Dir: filepath.Join(server.Dir, "state")})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Do(a.Close); err != nil && !errors.Is(err, lab.ErrClosed) {
			t.Error(err)
		}
	})
}

// serveAll answers at addresses of the namespace: with web servers, one of them with TLS, and with services of
// datagrams. Port 8088 is closed on S4, whose DNS does not have its zone either; a path /bad/S1,S2, with the addresses
// of those servers, fails on them.
func serveAll(t *testing.T, name, label string, addresses []netip.Addr) error {
	for _, port := range []int{80, 443, 8080, 8088} {
		if port == 8088 && label == "S4" {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bad, is := strings.CutPrefix(r.URL.Path, "/bad/"); is && strings.Contains(bad, addresses[0].String()) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprintf(w, "%s port %d host %s path %s\n", name, port, r.Host, r.URL.Path)
		}))
		web.Listener.Close()
		web.Listener = listener
		if port == 443 {
			web.StartTLS()
		} else {
			web.Start()
		}
		t.Cleanup(web.Close)
	}
	for _, address := range addresses { // the source of each answer is the address that was asked
		for _, port := range []uint16{53, 5353} {
			packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, port)))
			if err != nil {
				return fmt.Errorf("%s port %d: %w", address, port, err)
			}
			if port == 53 {
				answer := func(w dns.ResponseWriter, q *dns.Msg) { w.WriteMsg(zoneAnswer(q, name, label)) }
				server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(answer)}
				t.Cleanup(func() { server.Shutdown() })
				go server.ActivateAndServe()
				continue
			}
			t.Cleanup(func() { packets.Close() })
			go serveUDP(packets, name)
		}
	}
	return nil
}

// zoneAnswer answers TXT queries with the name of the server, and all others with a zone's head, which S4 does not
// have.
func zoneAnswer(q *dns.Msg, name, label string) *dns.Msg {
	answer := new(dns.Msg).SetReply(q)
	head := dns.RR_Header{Name: q.Question[0].Name, Class: dns.ClassINET, Ttl: 1}
	switch {
	case q.Question[0].Qtype == dns.TypeTXT:
		head.Rrtype = dns.TypeTXT
		answer.Answer = []dns.RR{&dns.TXT{Hdr: head, Txt: []string{name}}}
	case label == "S4":
		answer.Rcode = dns.RcodeServerFailure
	default:
		head.Rrtype = dns.TypeSOA
		answer.Answer = []dns.RR{&dns.SOA{Hdr: head, Ns: "ns.example.org.", Mbox: "root.example.org.", Serial: 1}}
	}
	return answer
}

// target parses the target of a request: [6:|2:]PORT[/udp|/dns|/tls]. 6 is the IPv6 VIP, 2 the second IPv4 VIP.
func (r request) target(l *lab.Lab) (to netip.AddrPort, kind string) {
	vip, port := l.VIP4, r.port
	if family, rest, ok := strings.Cut(port, ":"); ok {
		vip, port = map[string]netip.Addr{"6": l.VIP6, "2": l.VIP4.Next()}[family], rest
	}
	port, kind, _ = strings.Cut(port, "/")
	number, _ := strconv.ParseUint(port, 10, 16)
	return netip.AddrPortFrom(vip, uint16(number)), kind
}

// askDatagram sends a server a datagram, and returns the server's name, or nothing. A lost datagram is sent again.
func askDatagram(client *lab.Host, to netip.AddrPort, kind string, bound time.Duration) string {
	var connection net.Conn
	if err := client.Do(func() (err error) {
		connection, err = net.Dial("udp", to.String())
		return err
	}); err != nil {
		return ""
	}
	defer connection.Close()
	for range 2 {
		connection.SetDeadline(time.Now().Add(bound / 2))
		if kind == "udp" {
			fmt.Fprint(connection, "who")
			answer := make([]byte, 100)
			if n, err := connection.Read(answer); err == nil {
				name, _, _ := strings.Cut(string(answer[:n]), " ")
				return name
			}
			continue
		}
		c := &dns.Conn{Conn: connection}
		if c.WriteMsg(new(dns.Msg).SetQuestion("who.example.org.", dns.TypeTXT)) != nil {
			continue
		}
		if answer, err := c.ReadMsg(); err == nil && len(answer.Answer) == 1 {
			return answer.Answer[0].(*dns.TXT).Txt[0]
		}
	}
	return ""
}

// wrapTLS starts TLS if the request asks for it.
func wrapTLS(connection net.Conn, kind string) net.Conn {
	if kind != "tls" {
		return connection
	}
	return tls.Client(connection, &tls.Config{InsecureSkipVerify: true}) // it is a server of this test
}

// awaitTable waits until keepalived's table is that of the case, after its checks, and it has its addresses.
func (c sameCase) awaitTable(t *testing.T, l *lab.Lab, ended *atomic.Bool, log *cmdtest.SyncBuffer) {
	t.Helper()
	var table string
	defer func() {
		if t.Failed() {
			t.Logf("IPVS has:\n%s\nkeepalived said:\n%s\nof:\n%s", table, log.String(), c.text)
		}
	}()
	testenv.Eventually(t, startTimeoutOriginal, fmt.Sprintf("keepalived has %d servers", c.up), func() bool {
		if ended.Load() {
			t.Fatal("keepalived ended")
		}
		text, err := readIn(l.Balancer, "/proc/thread-self/net/ip_vs")
		if table = text; err != nil || servedBy(text) != c.up {
			return false
		}
		for _, server := range c.upAre {
			if !strings.Contains(text, server) {
				return false
			}
		}
		if !c.holdsVIP() {
			return true
		}
		addresses, err := run(t, l.Balancer, "", testenv.Program(t, "ip"), "-o", "address")
		return err == nil && strings.Contains(addresses, l.VIP4.String()+"/")
	})
}

// readIn reads a file as a process of a host sees it.
func readIn(host *lab.Host, path string) (text string, err error) {
	err = host.Do(func() error {
		data, err := os.ReadFile(path)
		text = string(data)
		return err
	})
	return text, err
}

// servedBy counts the servers in a table of IPVS that get connections.
func servedBy(table string) (count int) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) > 3 && words[0] == "->" && words[1] != "RemoteAddress:Port" && words[3] != "0" {
			count++
		}
	}
	return count
}

// holdsVIP reports whether the program itself adds the VIP to an interface.
func (c sameCase) holdsVIP() bool { return strings.Contains(c.text, "vrrp_instance") }

// startKeepalived starts keepalived with a case, and returns a function that ends it.
func (c sameCase) startKeepalived(t *testing.T, l *lab.Lab) (end func()) {
	t.Helper()
	file := func(name string) string { return filepath.Join(l.Balancer.Dir, name) }
	if err := c.write(file("keepalived.conf")); err != nil {
		t.Fatal(err)
	}
	var log cmdtest.SyncBuffer
	args := []string{"--dont-fork", "--log-console", "--use-file", file("keepalived.conf"), "--pid",
		file("keepalived.pid"),
		"--checkers_pid", file("checkers.pid"), "--vrrp_pid", file("vrrp.pid")}
	process, err := l.Balancer.Start(context.WithoutCancel(t.Context()),
		lab.Command{Path: testenv.Program(t, "keepalived"), Args: args, Stdout: &log, Stderr: &log})
	if err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		process.Wait()
		ended.Store(true)
	}()
	end = func() {
		process.Signal(syscall.SIGTERM)
		<-done
	}
	defer func() {
		if t.Failed() {
			end()
		}
	}()
	c.awaitTable(t, l, &ended, &log)
	return end
}

// write writes a configuration and the files that it includes.
func (c sameCase) write(path string) error {
	for name, text := range c.parts {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(c.text), 0o600)
}
