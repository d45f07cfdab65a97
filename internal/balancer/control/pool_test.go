// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// pooling is a configuration with services of full NAT: web and shop share web01, tcp6 and dns
// have its address, and plain, of NAT, has no pool.
func pooling(addresses, ports string) string {
	return fmt.Sprintf(`
interface: eth9
fullnat: {addresses: [%s], ports: %s}
services:
  - {name: web, vip: 192.0.2.100, port: 80, mode: fullnat, backends: [{name: web01, address: 192.0.2.1}, {name: web02, address: 192.0.2.2}]}
  - {name: shop, vip: 192.0.2.101, port: 80, mode: fullnat, backends: [{name: web01, address: 192.0.2.1}]}
  - {name: dns, vip: 192.0.2.100, port: 80, protocol: udp, mode: fullnat, backends: [{name: web01, address: 192.0.2.1}]}
  - {name: tcp6, vip: 2001:db8::100, port: 80, mode: fullnat, backends: [{name: web01, address: "2001:db8::1"}]}
  - {name: plain, vip: 192.0.2.102, port: 81, mode: nat, backends: [{name: web01, address: 192.0.2.1}]}
`, addresses, ports)
}

const (
	onePool = "192.0.2.9, '2001:db8::9'"
	// thousand ports, and as many again with a second address of IPv4.
	thousand = "20000-20999"
	twoPools = "192.0.2.9, '2001:db8::9', 192.0.2.10"
)

// held names a backend of that configuration by its service's VIP and its address.
func held(vip, address string, protocol lb.Protocol) lb.BackendKey {
	return lb.BackendKey{Service: lb.ServiceKey{VIP: netip.MustParseAddr(vip), Port: 80, Protocol: protocol},
		Address: netip.MustParseAddr(address), Port: 80}
}

var (
	webOne  = held("192.0.2.100", "192.0.2.1", lb.TCP)
	webTwo  = held("192.0.2.100", "192.0.2.2", lb.TCP)
	shopOne = held("192.0.2.101", "192.0.2.1", lb.TCP)
	dnsOne  = held("192.0.2.100", "192.0.2.1", lb.UDP)
	sixOne  = held("2001:db8::100", "2001:db8::1", lb.TCP)
)

// shortages are the lines of the log, and the problems of the status, that are about ports.
func (w *world) shortages(c *Controller) (lines, problems []string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "ports") && strings.Contains(line, "full NAT") {
			lines = append(lines, line)
		}
	}
	w.log.Reset()
	w.mu.Unlock()
	status, err := c.Status()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, problem := range status.Problems {
		if strings.Contains(problem, "ports that full NAT has") {
			problems = append(problems, problem)
		}
	}
	return lines, problems
}

// portsOf returns a backend's ports as the status shows them.
func portsOf(t *testing.T, c *Controller, service, backend int) *ops.Ports {
	t.Helper()
	status, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	return status.Services[service].Backends[backend].Ports
}

// counts holds ports and compares the new lines of the log and the problems in the status; each want stands for a line,
// by the words that it must have.
func (w *world) counts(c *Controller, ports map[lb.BackendKey]uint32, wantLog, wantProblems []string) {
	w.t.Helper()
	w.hold(ports)
	lines, problems := w.shortages(c)
	if len(lines) != len(wantLog) || !slices.EqualFunc(lines, wantLog, strings.Contains) {
		w.t.Errorf("%v: the log has %q, want %q", ports, lines, wantLog)
	}
	if len(problems) != len(wantProblems) || !slices.EqualFunc(problems, wantProblems, strings.Contains) {
		w.t.Errorf("%v: the status has %q, want %q", ports, problems, wantProblems)
	}
}

// TestScarcePorts: from 80 % on there is one line, and one more below 70 %.
func TestScarcePorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller(pooling(onePool, thousand))
		stop := w.run(c)
		defer stop()
		const two = "backend web02 (192.0.2.2) of web: open flows hold"
		for _, step := range []struct {
			held          uint32
			log, problems []string
		}{
			{0, nil, nil},
			{799, nil, nil},
			{800, []string{two + " 800 of the 1000 ports"}, []string{two + " 800 of the 1000 ports"}},
			{950, nil, []string{two + " 950 of the 1000 ports"}},
			{790, nil, []string{two + " 790 of the 1000 ports"}},
			{810, nil, []string{two + " 810 of the 1000 ports"}},
			{700, nil, []string{two + " 700 of the 1000 ports"}},
			{699, []string{"level=INFO msg=\"backend web02 (192.0.2.2) of web: full NAT has ports enough for it again, with 699 of 1000"}, nil},
			{799, nil, nil},
			{1000, []string{"add to fullnat.addresses, widen fullnat.ports, or add backends"},
				[]string{two + " 1000 of the 1000 ports"}},
		} {
			w.counts(c, map[lb.BackendKey]uint32{webTwo: step.held}, step.log, step.problems)
		}
	})
}

// TestScarcePortsOfSeveral: services with one endpoint share its ports; other endpoints have
// their own, also at the same address.
func TestScarcePortsOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller(pooling(onePool, thousand))
		stop := w.run(c)
		defer stop()
		w.counts(c, map[lb.BackendKey]uint32{webOne: 400, shopOne: 399, webTwo: 799, dnsOne: 799, sixOne: 799}, nil,
			nil)
		shared := "backend web01 (192.0.2.1) of web (and of one more service): open flows hold 800 of"
		w.counts(c, map[lb.BackendKey]uint32{webOne: 400, shopOne: 400, webTwo: 799, dnsOne: 799, sixOne: 799},
			[]string{shared}, []string{shared})
		for _, at := range [][2]int{{0, 0}, {1, 0}} {
			if got := portsOf(t, c, at[0], at[1]); got == nil ||
				*got != (ops.Ports{Held: 800, Limit: 1000, Scarce: true}) {
				t.Errorf("service %d says %+v", at[0], got)
			}
		}
		if got := portsOf(t, c, 0, 1); got == nil || *got != (ops.Ports{Held: 799, Limit: 1000}) {
			t.Errorf("web02 has %+v", got)
		}
		if got := portsOf(t, c, 4, 0); got != nil {
			t.Errorf("a backend of NAT has %+v", got)
		}
		dns, six := "of dns: open flows hold 801", "backend web01 (2001:db8::1) of tcp6: open flows hold 802"
		w.counts(c, map[lb.BackendKey]uint32{webOne: 400, shopOne: 299, dnsOne: 801, sixOne: 802},
			[]string{"(and of one more service): full NAT has ports enough", dns, six}, []string{dns, six})
	})
}

// TestScarcePortsOfAReload: a larger pool ends a shortage with the next count, for its own
// family, and a smaller one begins it; the log does not name a backend that has left.
func TestScarcePortsOfAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i, addr := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"} {
			w.found(addr, byte(i+1))
		}
		c := w.controller(pooling(onePool, thousand))
		stop := w.run(c)
		defer stop()
		load := func(file string) {
			t.Helper()
			w.quiet()
			w.mustReload(c, file)
		}
		busy := map[lb.BackendKey]uint32{webTwo: 900, sixOne: 900}
		two, six := "backend web02 (192.0.2.2) of web: open flows hold 900 of",
			"of tcp6: open flows hold 900 of the 1000"
		w.counts(c, busy, []string{two, six}, []string{two, six})
		load(pooling(twoPools, thousand))
		w.counts(c, busy,
			[]string{"web02 (192.0.2.2) of web: full NAT has ports enough for it again, with 900 of 2000"},
			[]string{six})
		load(pooling(onePool, thousand))
		w.counts(c, busy, []string{two}, []string{two, six})
		load(pooling(onePool, "20000-29999"))
		w.counts(c, busy, []string{"with 900 of 10000", "with 900 of 10000"}, nil)
		load(pooling(onePool, thousand))
		w.counts(c, busy, []string{two, six}, []string{two, six})

		gone := strings.Replace(pooling(onePool, thousand), ", {name: web02, address: 192.0.2.2}", "", 1)
		load(gone)
		w.counts(c, busy, nil, []string{six})
		load(pooling(onePool, thousand))
		w.counts(c, busy, []string{two}, []string{two, six})
		// And without the mode.
		load(mode(lb.NAT))
		w.counts(c, busy, nil, nil)
		load(pooling(onePool, thousand))
		w.counts(c, map[lb.BackendKey]uint32{}, nil, nil)
	})
}
