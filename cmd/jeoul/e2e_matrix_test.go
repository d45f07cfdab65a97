// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The sizes of transfers, in bytes. The largest is for one cell of each mode, in `make test-matrix`.
const (
	one, kilo, mega, huge = 1, 1 << 10, 1 << 20, 100 << 20
)

// asks is the number of connections or sockets that show the spreading. The hash sends all of them to one of three
// backends once in a million years of runs.
const asks = 24

// padding makes a query of two fragments.
const padding = 2000

// TestEveryMode is the matrix: mode × family × protocol × hook, and the tunnels whose backends have the other family.
// Web and DNS servers answer through every path; their data arrives complete in both directions, they see the client as
// the mode promises, and each gets its share.
func TestEveryMode(t *testing.T) {
	testenv.Also(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := newStage(t, hook, 2, one, kilo, mega, huge)
		for i, p := range paths() {
			for _, port := range cellPorts(i) {
				name := fmt.Sprintf("%s/%d", p, port)
				if p.crosses() && (port == otherWebPort || port == otherDNSPort) {
					name += "-crosswise"
				}
				t.Run(name, func(t *testing.T) { s.tryCell(t, p, port) })
				if p.mode != lb.NAT { // TestHairpin: a stage has none, so that servers see the clients of its segment
					t.Run(name+"-backend", func(t *testing.T) { s.tryBackend(t, p, port) })
				}
			}
		}
		s.checkOutcomes(t)
	})
}

// cellPorts returns the ports of the tested services of path i: a web service and a name service, with the schedulers
// and the backends' families in turns; all of them in `make test-matrix`.
func cellPorts(i int) []uint16 {
	switch {
	case testenv.InTarget(matrixTarget):
		return []uint16{webPort, otherWebPort, dnsPort, otherDNSPort}
	case i/2%2 == i%2:
		return []uint16{webPort, otherDNSPort}
	default:
		return []uint16{otherWebPort, dnsPort}
	}
}

// tryCell tests everything on one service.
func (s *stage) tryCell(t *testing.T, p path, port uint16) {
	to := netip.AddrPortFrom(p.vip, port)
	if port == dnsPort || port == otherDNSPort {
		s.tryDNS(t, p, to)
		return
	}
	s.tryWeb(t, p, to)
}

// tryBackend sends a request from a backend. In the modes of direct return it has the VIP, and answers itself; in the
// others a backend serves it, possibly itself.
func (s *stage) tryBackend(t *testing.T, p path, port uint16) {
	backend := s.Servers[0]
	if server := s.askAs(t, p, port, backend); !p.mode.Translates() && server != backend.Name {
		t.Errorf("%s, which holds %s, was answered by %s", backend.Name, p.vip, server)
	}
}

// askAs sends one request from a host to a service, and returns the name of the server that answered.
func (s *stage) askAs(t *testing.T, p path, port uint16, host *lab.Host) string {
	t.Helper()
	to := netip.AddrPortFrom(p.vip, port)
	if port != dnsPort && port != otherDNSPort {
		seen, err := e2e.NewBrowser(host).Who(bounded(t), to)
		if err != nil {
			t.Fatalf("%s asks %s: %v", host.Name, to, err)
		}
		return seen.Server
	}
	asker, err := e2e.NewAsker(host, to)
	if err != nil {
		t.Fatalf("%s asks %s: %v", host.Name, to, err)
	}
	defer asker.Close()
	name, err := asker.Ask(e2e.NewQuery(e2e.Small, 0), e2e.Small)
	if err != nil {
		t.Fatalf("%s asks %s: %v", host.Name, to, err)
	}
	return name
}

// tryWeb spreads connections, then transfers files in both directions.
func (s *stage) tryWeb(t *testing.T, p path, to netip.AddrPort) {
	client := s.Clients[0]
	browser := e2e.NewBrowser(client)
	counts := map[string]int{}
	for range asks {
		seen, err := browser.Who(bounded(t), to)
		if err == nil {
			err = s.checkSeen(p, seen, client)
		}
		if err != nil {
			t.Fatal(err)
		}
		counts[seen.Server]++
	}
	s.checkSpread(t, to, counts)
	sizes := []int64{one, kilo, mega}
	if to.Port() == webPort && p.vip.Is4() && testenv.InTarget(matrixTarget) {
		sizes = append(sizes, huge)
	}
	for _, size := range sizes {
		seen, err := browser.Download(t.Context(), to, s.files, size)
		if err == nil {
			err = s.checkSeen(p, seen, client)
		}
		if err != nil {
			t.Errorf("download of %d bytes: %v", size, err)
		}
		seen, err = browser.Upload(t.Context(), to, s.files, size, "upload", s.webs)
		if err == nil {
			err = s.checkSeen(p, seen, client)
		}
		if err != nil {
			t.Errorf("upload of %d bytes: %v", size, err)
		}
	}
}

// tryDNS sends queries from many sockets, with queries and answers of one packet and of several.
func (s *stage) tryDNS(t *testing.T, p path, to netip.AddrPort) {
	client := s.Clients[1]
	// If a backend's MAC address was resolved later than another's at the start, UDP flows follow the previous table
	// for the duration of that change's window.
	s.eventually(t, fmt.Sprintf("no transition of %s is under way", to), func(status *ops.Status) bool {
		return !slices.ContainsFunc(status.Services, func(service ops.Service) bool {
			return service.Transition != nil && service.Protocol == lb.UDP && service.VIP == to.Addr() &&
				service.Port == to.Port()
		})
	})
	counts := map[string]int{}
	for range asks {
		counts[s.ask(t, p, to, client, e2e.Small, 0)]++
	}
	s.checkSpread(t, to, counts)
	before := s.fragments(t, client)
	s.ask(t, p, to, client, e2e.Large, 0)
	s.ask(t, p, to, client, e2e.Small, padding)
	s.ask(t, p, to, client, e2e.Large, padding)
	if after := s.fragments(t, client); after.made < before.made+2 || after.joined < before.joined+2 {
		t.Errorf("%d datagrams were sent as fragments and %d came as such, want 2 of each: this has shown nothing",
			after.made-before.made, after.joined-before.joined)
	}
}

// ask sends one query from a new socket, checks which client the server saw, and returns the server's name.
func (s *stage) ask(t *testing.T, p path, to netip.AddrPort, client *lab.Host, kind e2e.Answer, padding int) string {
	t.Helper()
	asker, err := e2e.NewAsker(client, to)
	if err != nil {
		t.Fatal(err)
	}
	defer asker.Close()
	query := e2e.NewQuery(kind, padding)
	name, err := asker.Ask(query, kind)
	if err != nil {
		t.Fatalf("a %s answer to %d bytes of padding: %v", kind, padding, err)
	}
	server := s.dns[name]
	if server == nil {
		t.Fatalf("%q answered, which is no server of the laboratory", name)
	}
	seen, err := server.Seen(query)
	if err == nil {
		err = s.checkSeen(p, seen, client)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// checkSeen returns an error if a server saw another client or address than the mode promises.
func (s *stage) checkSeen(p path, seen e2e.Seen, client *lab.Host) error {
	server, err := s.server(seen.Server)
	if err != nil {
		return err
	}
	return p.checkSeen(seen, p.own(client), server)
}

// checkSpread checks that new flows went to more than one backend.
func (s *stage) checkSpread(t *testing.T, to netip.AddrPort, counts map[string]int) {
	t.Helper()
	if len(counts) < 2 {
		t.Errorf("%d new flows to %s were not spread: %v", asks, to, counts)
	}
}

// fragmentCounts are the datagrams that a host has sent as fragments and has reassembled.
type fragmentCounts struct{ made, joined uint64 }

func (s *stage) fragments(t *testing.T, host *lab.Host) fragmentCounts {
	t.Helper()
	four, err := host.NetStat("IpFragOKs", "IpReasmOKs")
	if err != nil {
		t.Fatal(err)
	}
	six, err := e2e.NetStat6(host)
	if err != nil {
		t.Fatal(err)
	}
	return fragmentCounts{four["IpFragOKs"] + six["Ip6FragOKs"], four["IpReasmOKs"] + six["Ip6ReasmOKs"]}
}

// checkOutcomes checks that only packets were dropped that had to be: those too big for a tunnel, if there were too
// many to answer each, and the later fragments of a datagram whose first one was too big.
func (s *stage) checkOutcomes(t *testing.T) {
	t.Helper()
	counts := s.outcomes(t)
	for name, packets := range counts {
		if strings.HasPrefix(name, "dropped") && packets > 0 && name != "dropped_fragment" &&
			name != "dropped_too_big" {
			t.Errorf("%d packets were %s", packets, name)
		}
	}
	if tooBig := counts["answered_too_big"] + counts["dropped_too_big"]; counts["dropped_fragment"] > tooBig {
		t.Errorf("%d fragments were dropped, and only %d packets too big", counts["dropped_fragment"], tooBig)
	}
}

// noCells are the cells that cannot exist, with a part of the message with which the configuration rejects them.
var noCells = []struct {
	modes  []lb.Mode
	why    string
	says   string
	change func(service entry)
}{
	{[]lb.Mode{lb.L2DSR, lb.DSCP, lb.NAT, lb.FullNAT},
		"the packet's own header goes to the backend, so both have one family",
		"which only the modes ipip, gue and proxy can cross", func(service entry) {
			service["backends"] = []entry{{"name": "w", "address": "2001:2::2:1"}}
		}},
	{[]lb.Mode{lb.L2DSR, lb.IPIP, lb.GUE, lb.DSCP},
		"the packet's ports are not touched, so a backend listens on the service's",
		"leaves ports as they are", func(service entry) {
			service["backends"] = []entry{{"name": "w", "address": "198.18.2.1", "port": 8080}}
		}},
}

// TestImpossibleCells checks that the configuration rejects each cell that the matrix leaves out, with the reason.
func TestImpossibleCells(t *testing.T) {
	for _, cells := range noCells {
		for _, mode := range cells.modes {
			service := entry{"name": "s", "vip": "198.18.0.100", "port": 80, "mode": string(mode)}
			cells.change(service)
			t.Logf("there is no cell %s with %v: %s", mode, service["backends"], cells.why)
			_, err := config.Parse("cells.yaml",
				yamlOf(t, entry{"interface": "eth0", "fullnat": entry{"addresses": []string{"198.18.0.99"}},
					"services": []entry{service}}))
			cmdtest.WantError(t, err, cells.says)
		}
	}
}
