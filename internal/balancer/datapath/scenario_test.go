// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// scenario is a service to which things happen, one after the other. Each packet is checked against the model: verdict,
// bytes, counters, and all entries.
type scenario struct {
	t *testing.T
	r *rig
	// s is the service as it is now, and from where its client's packets come.
	s    lb.RoutedService
	from netip.Addr
	// others are further services.
	others []lb.RoutedService
	// isns are the sequence numbers of the connections from each port.
	isns map[int]uint32
}

// runScenario runs a test in both hooks, with a service of which nothing is known yet.
func runScenario(t *testing.T, s lb.RoutedService, test func(*scenario)) {
	t.Helper()
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		beside := keepProgram(s)
		test(&scenario{t: t, s: s, from: clientOf(0, s.VIP.Is6(), 7), others: []lb.RoutedService{beside},
			isns: map[int]uint32{}, r: scenarioRig(t, hook, s, beside)})
	})
}

// runScenarioWith is runScenario with other options.
func runScenarioWith(t *testing.T, change func(lb.Hook, *Options), s lb.RoutedService, test func(*scenario)) {
	t.Helper()
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		options := testOptions(hook)
		change(hook, &options)
		r := newRigWith(t, options, lb.State{Services: []lb.RoutedService{s}})
		test(&scenario{t: t, s: s, from: clientOf(0, s.VIP.Is6(), 7), r: r, isns: map[int]uint32{}})
	})
}

// scenarioRigs are the rigs that stories share, one after the other: the kernel takes its
// time to verify a program, and each mode has another.
var scenarioRigs = map[string]*rig{}

// keepProgram is a service that stays when the story's leaves: as long as it has the same
// mode, the program stays too.
func keepProgram(s lb.RoutedService) lb.RoutedService {
	other := testService(vip6, 9, lb.TCP, lb.Maglev, 1)
	other.Mode, other.DSCP = s.Mode, s.DSCP
	return other
}

// scenarioRig returns one that has forgotten the stories before.
func scenarioRig(t *testing.T, hook lb.Hook, s, beside lb.RoutedService) *rig {
	t.Helper()
	enterTestNet(t)
	name := string(hook) + " " + string(s.Mode)
	r := scenarioRigs[name]
	if state := (lb.State{Services: []lb.RoutedService{s, beside}, Pool: scenarioPool(s)}); r == nil {
		r = makeRig(t, testOptions(hook), state)
		scenarioRigs[name] = r
	} else {
		r.apply(t, lb.State{Services: []lb.RoutedService{beside}, Pool: scenarioPool(s)})
		r.advance(t, 25*time.Hour)
		r.apply(t, state)
	}
	t.Cleanup(func() {
		if t.Failed() {
			delete(scenarioRigs, name)
			r.datapath.Close()
		}
	})
	return r
}

// scenarioPool is the pool of a story's service of full NAT; of others nothing.
func scenarioPool(s lb.RoutedService) (pool lb.Pool) {
	if s.Mode == lb.FullNAT {
		pool = lb.Pool{Addresses: []netip.Addr{pool4, pool6}, FirstPort: 20000, LastPort: 23999}
	}
	return pool
}

// send has the client send a packet from a port; the flags are those of TCP, and "+" begins another connection: the SYN
// has a sequence number of its own. Packets after a SYN have the next one.
func (y *scenario) send(port int, flags string) verdict {
	y.t.Helper()
	flags, another := strings.CutSuffix(flags, "+")
	if another {
		y.isns[port] += 0x9e3779b1
	}
	return y.sendAs(port, flags, y.isns[port])
}

// sendAs is send for a connection whose SYN had a sequence number.
func (y *scenario) sendAs(port int, flags string, isn uint32) verdict {
	y.t.Helper()
	p := packetSpec{from: y.from, at: y.s.VIP, sport: uint16(port), dport: y.s.Port, udp: y.s.Protocol == lb.UDP,
		flags: flags, seq: isn, payload: 11}
	if !strings.Contains(flags, "S") || strings.Contains(flags, "A") {
		p.seq++
	}
	v := y.r.check(y.t, p.build(y.t))
	if y.t.Failed() {
		y.t.FailNow() // later packets would prove nothing
	}
	return v
}

// expect is send, for a packet whose outcome the test knows.
func (y *scenario) expect(port int, flags, outcome string) verdict {
	y.t.Helper()
	v := y.send(port, flags)
	if v.outcome != outcome {
		y.t.Errorf("%s from port %d: %s, want %s", flags, port, v.outcome, outcome)
	}
	return v
}

// untilRefused opens flows from a port on until one is refused for the rate, and returns the port after it: where the
// test stands still between two of them, the rate allows the next.
func (y *scenario) untilRefused(port int, flags, outcome string) (next int) {
	y.t.Helper()
	testenv.Eventually(y.t, testenv.WaitLimit, "a flow ends with "+outcome, func() bool {
		v := y.send(port, flags)
		port++
		if v.outcome != outcome && v.outcome != "forwarded" {
			y.t.Fatalf("%s from port %d: %s, want %s", flags, port-1, v.outcome, outcome)
		}
		return v.outcome == outcome
	})
	return port
}

// to sends a packet and returns the number of the backend that got it.
func (y *scenario) to(port int, flags string) int {
	y.t.Helper()
	return indexOfBackend(&y.s, y.expect(port, flags, "forwarded").backend)
}

// reply has the flow's backend send a packet to the client.
func (y *scenario) reply(port int, flags string) {
	y.t.Helper()
	e := y.entry(port)
	if e == nil {
		y.t.Fatalf("the flow of port %d is unknown", port)
	}
	p := packetSpec{from: e.backend.Address, at: y.from, sport: e.backend.Port, dport: uint16(port),
		udp: y.s.Protocol == lb.UDP, flags: flags}
	if e.pool.IsValid() {
		p.at, p.dport = e.pool.Addr(), e.pool.Port()
	}
	if v := y.r.check(y.t, p.build(y.t)); v.outcome != "returned" {
		y.t.Errorf("a backend's reply: %s", v.outcome)
	}
}

// play sends the packets of a script, from a port: TCP flags with spaces between; those after "<" are the backend's,
// and "-" is a datagram.
func (y *scenario) play(port int, script string) (last verdict) {
	y.t.Helper()
	for _, word := range strings.Fields(script) {
		if flags, back := strings.CutPrefix(word, "<"); back {
			y.reply(port, flags)
		} else {
			last = y.send(port, strings.Trim(word, "-"))
		}
	}
	return last
}

// entry is the entry of the flow from a port; nil where there is none.
func (y *scenario) entry(port int) *remembered {
	m := y.r.model
	return m.lookUp(flowName{client: y.from, port: uint16(port), service: m.standings[y.s.Key()].id})
}

// active is how many flows a backend has that have not ended.
func (y *scenario) active(backend int) uint32 {
	return y.r.model.lives[backendKeyOf(&y.s, backend)].load.active
}

// change changes the service.
func (y *scenario) change(how func(*lb.RoutedService)) {
	y.t.Helper()
	s := y.s
	s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
	how(&s)
	y.s = s
	y.r.apply(y.t, lb.State{Services: append([]lb.RoutedService{s}, y.others...), Pool: scenarioPool(s)})
}

// drain lets a backend take no new flows.
func (y *scenario) drain(backend int) {
	y.t.Helper()
	y.change(func(s *lb.RoutedService) { s.Backends[backend].Draining = true })
}

// losePath makes the path to a backend unknown; find makes it known again.
func (y *scenario) losePath(backend int) {
	y.t.Helper()
	y.change(func(s *lb.RoutedService) { s.Paths[backend].MAC = nil })
}

func (y *scenario) restorePath(backend int) {
	y.t.Helper()
	y.change(func(s *lb.RoutedService) { s.Paths[backend].MAC = []byte{2, 1, 1, 1, 1, byte(backend)} })
}

// advance lets time pass.
func (y *scenario) advance(d time.Duration) {
	y.t.Helper()
	y.r.advance(y.t, d)
	if problem := y.r.compareAll(y.t); problem != "" {
		y.t.Fatalf("after %v: %s", d, problem)
	}
}

// portsTo returns n ports whose packets the table sends to a backend.
func (y *scenario) portsTo(backend, n int) (ports []int) {
	y.t.Helper()
	for port := 1; port < 1<<16 && len(ports) < n; port++ {
		a := clientPacket{client: netip.AddrPortFrom(y.from, uint16(port))}
		if now, _, _ := y.r.model.candidates(&y.s, selectionHash(&y.s, a)); now == backend {
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		y.t.Fatalf("%d of %d ports lead to backend %d", len(ports), n, backend)
	}
	return ports
}

// spread opens flows from ports first to last, and counts them by backend.
func (y *scenario) spread(first, last int) []int {
	y.t.Helper()
	counts := make([]int, len(y.s.Backends))
	for port := first; port <= last; port++ {
		counts[y.to(port, "S")]++
	}
	return counts
}
