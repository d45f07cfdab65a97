// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// testTimeout is how long anything may take on a busy machine.
var testTimeout = testenv.WaitLimit

// network is where the members of a test are: addresses of the loopback interface that no other test has.
type network struct {
	t    *testing.T
	base [2]byte
	key  Key
	// fake is nil where it is the kernel's.
	fake *fakeNetwork
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, base: [2]byte{byte(1 + rand.IntN(254)), byte(rand.IntN(255))}, key: NewKey()}
}

func (n *network) address(i byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, n.base[0], n.base[1], i})
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// testMember is a member, whose tables the test changes.
type testMember struct {
	*Membership
	log lines
	mu  sync.Mutex
	has Local
	end func(leave bool)
}

func (m *testMember) set(change func(*Local)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.has)
}

func takers(ports ...uint16) []lb.Taker {
	list := []lb.Taker{}
	for _, port := range ports {
		list = append(list, lb.Taker{Endpoint: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.21"), port), Weight: 1})
	}
	return list
}

func webTable(digest uint64, takers []lb.Taker) []lb.ServiceTable {
	return []lb.ServiceTable{{Key: lb.ServiceKey{VIP: netip.MustParseAddr("198.51.100.80"), Port: 80, Protocol: lb.TCP},
		Name: "web", Digest: digest, Takers: takers}}
}

// start starts member i of so many.
func (n *network) start(i, of byte, change func(*Options)) *testMember {
	n.t.Helper()
	is := &testMember{has: Local{Configuration: "c0ffee", Ready: true, Tables: webTable(1, takers(80, 81))}}
	options := Options{MembersConfig: lb.MembersConfig{Listen: netip.AddrPortFrom(n.address(i), lb.DefaultMembersPort),
		Name: fmt.Sprintf("lb%d", i)},
		Keys: Keys{n.key}, Version: "1.2.3", Log: slog.New(slog.NewTextHandler(&is.log, nil)),
		tolerance: 50 * time.Millisecond,
		Local: func() Local {
			is.mu.Lock()
			defer is.mu.Unlock()
			return is.has
		},
		tuneConfig: func(c *memberlist.Config) {
			c.ProbeInterval, c.ProbeTimeout, c.GossipInterval = 200*time.Millisecond, 100*time.Millisecond,
				50*time.Millisecond
			c.SuspicionMult = 10
		}}
	if n.fake != nil {
		options.network = n.fake.listen
	}
	for peer := byte(1); peer <= of; peer++ {
		options.Peers = append(options.Peers, n.address(peer))
	}
	if change != nil {
		change(&options)
	}
	is.Membership = New(options)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { is.Run(ctx) })
	var once sync.Once
	is.end = func(leave bool) {
		once.Do(func() {
			cancel()
			group.Wait()
			if err := is.Close(leave); err != nil {
				n.t.Error(err)
			}
		})
	}
	n.t.Cleanup(func() { is.end(false) })
	return is
}

// eventually waits for something.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for deadline := time.Now().Add(testTimeout); !is(); <-ticks.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", testTimeout, what)
		}
	}
}

// hasMember reports whether a member has another in a state.
func (m *testMember) hasMember(name string, state ops.MemberState) bool {
	return slices.ContainsFunc(m.Status().Members, func(one ops.Member) bool {
		return one.Name == name && one.State == state
	})
}

func (m *testMember) hasReported(name string) bool {
	return slices.ContainsFunc(m.Status().Members, func(one ops.Member) bool { return one.Name == name && one.Ready })
}

// TestMembersCompare: three know of each other; one gets another table, which the others name with service and
// backend, and it is over when that is.
func TestMembersCompare(t *testing.T) {
	inBubble(t, testMembersCompare)
}

func testMembersCompare(t *testing.T, n *network) {
	all := []*testMember{n.start(1, 3, nil), n.start(2, 3, nil), n.start(3, 3, nil)}
	eventually(t, "all have each other's state", func() bool {
		for i, m := range all {
			for j := range all {
				if i != j && !m.hasReported(fmt.Sprintf("lb%d", j+1)) {
					return false
				}
			}
		}
		return true
	})
	if peers := all[0].Peers(); len(peers) != 2 || peers[0].Name != "lb2" ||
		peers[0].Address != netip.AddrPortFrom(n.address(2), lb.DefaultMembersPort) {
		t.Errorf("the first has the peers %v", peers)
	}
	if problems := Problems(all[0].Status()); len(problems) > 0 {
		t.Errorf("all are alike, and there are problems: %v", problems)
	}
	all[2].set(func(l *Local) { l.Tables = webTable(2, takers(80)) })
	warning := "member lb3 sends new flows of service web to other backends: 192.0.2.21:81 takes new flows here and not at lb3"
	eventually(t, "the others warn of the third", func() bool {
		return slices.Contains(Problems(all[0].Status()), warning) &&
			slices.Contains(Problems(all[1].Status()), warning)
	})
	if all[0].log.count("lb2 sends new flows") > 0 {
		t.Error("the second, which is like the first, is warned of")
	}
	all[2].set(func(l *Local) { l.Tables = webTable(1, takers(80, 81)) })
	eventually(t, "it is over", func() bool { return len(Problems(all[0].Status())) == 0 })
	if warned, over := all[0].log.count(warning), all[0].log.count("to the same backends again"); warned != 1 ||
		over != 1 {
		t.Errorf("it was said %d times, and that it is over %d times", warned, over)
	}
}

// TestMembersGoAndCome: one fails and comes back as another process, and one leaves.
func TestMembersGoAndCome(t *testing.T) {
	inBubble(t, testMembersLeaveAndJoin)
}

func testMembersLeaveAndJoin(t *testing.T, n *network) {
	one, other := n.start(1, 2, nil), n.start(2, 2, nil)
	eventually(t, "they have each other's state", func() bool {
		return one.hasReported("lb2") &&
			other.hasReported("lb1")
	})
	changed := one.Changed()
	other.end(false)
	eventually(t, "the first misses the second", func() bool { return one.hasMember("lb2", ops.MemberFailed) })
	select {
	case <-changed:
	default:
		t.Error("a member that has failed is no change of the peers")
	}
	if len(one.Peers()) > 0 {
		t.Error("a member that has failed is a peer")
	}
	other = n.start(2, 2, func(o *Options) { o.Version = "1.2.4" })
	eventually(t, "the first has the state of the second's next process", func() bool {
		return one.hasReported("lb2") && one.Status().Members[0].Version == "1.2.4"
	})
	other.end(true)
	eventually(t, "the second has left", func() bool { return one.hasMember("lb2", ops.MemberLeft) })
	if problems := Problems(one.Status()); len(problems) > 0 {
		t.Errorf("one has left, and there are problems: %v", problems)
	}
}

// TestMembersRefuse: another key, an address that is no peer's, and noise are refused, said once, and change nothing.
func TestMembersRefuse(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	one, other := n.start(1, 3, withLongTimeouts), n.start(2, 3, withLongTimeouts)
	keyless := n.start(3, 3, func(o *Options) { o.Keys = Keys{NewKey()} })
	untrusted := n.start(9, 3, nil)
	eventually(t, "the two have each other's state", func() bool {
		return one.hasReported("lb2") &&
			other.hasReported("lb1")
	})
	eventually(t, "the one with another key reports it", func() bool {
		return slices.ContainsFunc(Problems(keyless.Status()), func(p string) bool {
			return strings.Contains(p, "it has another key")
		})
	})
	eventually(t, "the unknown host reports it", func() bool {
		return slices.ContainsFunc(Problems(untrusted.Status()), func(p string) bool {
			return strings.Contains(p, "closes the connection")
		})
	})
	from := &net.UDPAddr{IP: n.address(8).AsSlice()}
	conn, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(one.opt.Listen))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	refused := one.Status().Refused
	for range 100 {
		if _, err := conn.Write([]byte("noise")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "noise is counted", func() bool { return one.Status().Refused >= refused+50 })
	for _, who := range []byte{3, 8, 9} {
		said := func() int { return one.log.count("refused what " + n.address(who).String() + " sends") }
		eventually(t, fmt.Sprintf("it is said of %v", n.address(who)), func() bool { return said() > 0 })
		if said := said(); said != 1 {
			t.Errorf("of %v it was said %d times", n.address(who), said)
		}
	}
	if peers := one.Peers(); len(peers) != 1 || !one.hasReported("lb2") {
		t.Errorf("the first has the peers %v", peers)
	}
}

// TestPeersChange: a peer that is added is found, one that is removed is let go though it and a third go on, and comes
// back when it is a peer again, at once or later.
func TestPeersChange(t *testing.T) {
	inBubble(t, testPeersChange)
}

func testPeersChange(t *testing.T, n *network) {
	peers := func(of ...byte) (list []netip.Addr) {
		for _, i := range of {
			list = append(list, n.address(i))
		}
		return list
	}
	one, other := n.start(1, 2, nil), n.start(2, 2, nil)
	third := n.start(3, 3, nil)
	eventually(t, "two have each other's state", func() bool {
		return one.hasReported("lb2") &&
			other.hasReported("lb1")
	})
	other.SetPeers(peers(1, 2, 3))
	eventually(t, "the second has the third's state", func() bool {
		return other.hasReported("lb3") &&
			third.hasReported("lb2")
	})
	if status := one.Status(); len(status.Members) != 1 {
		t.Errorf("the first has members that are no peers of its: %+v", status.Members)
	}
	one.SetPeers(peers(1, 2, 3))
	eventually(t, "the first has the third's state", func() bool {
		return one.hasReported("lb3") &&
			third.hasReported("lb1")
	})

	// Away and back while the second goes on knowing it, and then until all have forgotten it: SWIM asks by others,
	// too.
	for _, longer := range []bool{false, true} {
		changed := one.Changed()
		one.SetPeers(peers(2))
		select {
		case <-changed:
		default:
			t.Error("a peer that is let go is no change of the peers")
		}
		if status := one.Status(); len(status.Members) != 1 || len(one.Peers()) != 1 || one.IsPeer(n.address(3)) {
			t.Errorf("the first has %+v after it has let the third go", status.Members)
		}
		eventually(t, "the second, which has its own peers, has the third",
			func() bool { return other.hasReported("lb3") })
		if longer {
			other.SetPeers(peers(1))
			eventually(t, "the third misses the others", func() bool {
				return third.hasMember("lb1", ops.MemberFailed) && third.hasMember("lb2", ops.MemberFailed)
			})
			eventually(t, "memberlist has forgotten the third", func() bool {
				one.Membership.mu.Lock()
				defer one.Membership.mu.Unlock()
				return one.nodes["lb3"] == nil
			})
		}
		other.SetPeers(peers(1, 3))
		one.SetPeers(peers(2, 3))
		eventually(t, "the first has the third's state again", func() bool {
			return one.hasReported("lb3") && third.hasReported("lb1")
		})
	}
	eventually(t, "the second has the third's state again", func() bool { return other.hasReported("lb3") })
	if gone := one.log.count("lb3 (" + n.address(3).String()); one.log.count("is let go") != 2 || gone == 0 {
		t.Errorf("it is said %d times that a member is let go", one.log.count("is let go"))
	}
}

// TestKeysRotate: three get another key by three steps each, one after the other, and none is missed by another at any
// time; a step too early is found before it cuts one off, and the old key opens nothing any more.
func TestKeysRotate(t *testing.T) {
	inBubble(t, testKeysRotate)
}

func testKeysRotate(t *testing.T, n *network) {
	fresh := NewKey()
	all := []*testMember{n.start(1, 4, withLongTimeouts), n.start(2, 4, withLongTimeouts), n.start(3, 4,
		withLongTimeouts)}
	whole := func() bool {
		for i, m := range all {
			for j := range all {
				if name := fmt.Sprintf("lb%d", j+1); i != j && !m.hasReported(name) {
					return false
				}
			}
		}
		return true
	}
	eventually(t, "all have each other's state", whole)
	for _, keys := range []Keys{{n.key, fresh}, {fresh, n.key}, {fresh}} {
		for _, m := range all {
			eventually(t, "the step is no early one", func() bool { return m.CheckKeys(keys, m.opt.Peers) == nil })
			use, err := m.PrepareKeys(keys, m.opt.Peers)
			if err != nil {
				t.Fatal(err)
			}
			use()
			if early := (Keys{NewKey()}); !errors.Is(m.CheckKeys(early, m.opt.Peers), ErrDisconnects) ||
				m.CheckKeys(early, nil) != nil {
				t.Error("a key that no other member has is none that cuts it off")
			}
		}
		eventually(t, "all say which keys they have", func() bool {
			for _, m := range all {
				for _, other := range m.Status().Members {
					if other.Name != "" && !slices.Equal(other.Keys, keys.fingerprints()) {
						return false
					}
				}
			}
			return whole()
		})
	}
	outdated := n.start(4, 4, nil)
	eventually(t, "one that has the old key reports it", func() bool {
		return slices.ContainsFunc(Problems(outdated.Status()), func(p string) bool {
			return strings.Contains(p, "it has another key")
		})
	})
	for _, m := range all {
		if m.log.count("not reached any more") > 0 {
			t.Errorf("%s has missed another:\n%s", m.opt.Name, m.log.text.String())
		}
		for _, key := range (Keys{fresh, n.key}) {
			if m.log.count(key.String()) > 0 {
				t.Error("a key is in the log")
			}
		}
	}
}

// TestReplayedStates: a state that is older, of an earlier process, or of one that is not there, is not accepted.
func TestReplayedStates(t *testing.T) {
	m := New(Options{MembersConfig: lb.MembersConfig{Name: "lb1"}, Keys: Keys{NewKey()}, Local: func() Local {
		return Local{}
	}, Log: slog.New(slog.DiscardHandler)})
	m.nodes["lb2"] = &node{name: "lb2", state: ops.MemberAlive, greeting: greeting{messageFormat, 7, "1"},
		differences: map[string]*differing{}}
	said := func(instance, sequence uint64, name string) string {
		m.applyState(state{Format: messageFormat, Name: name, Instance: instance, Sequence: sequence,
			Configuration: fmt.Sprint(instance, "-", sequence), Tables: []tableState{}}.encode())
		if s := m.nodes["lb2"].lastState; s != nil {
			return s.Configuration
		}
		return ""
	}
	for _, test := range []struct {
		instance, sequence uint64
		name, want         string
	}{
		{6, 9, "lb2", ""}, {7, 3, "lb2", "7-3"}, {7, 3, "lb2", "7-3"}, {7, 2, "lb2", "7-3"}, {6, 9, "lb2", "7-3"},
		{7, 4, "lb3", "7-3"}, {7, 4, "lb2", "7-4"},
	} {
		if got := strings.ReplaceAll(said(test.instance, test.sequence, test.name), " ", ""); got != test.want {
			t.Errorf("after %d-%d of %s: %s, want %s", test.instance, test.sequence, test.name, got, test.want)
		}
	}
	if len(m.nodes) != 1 {
		t.Error("what a member says has made another")
	}
}

// TestDifferences are named with the first backend.
func TestDifferences(t *testing.T) {
	weighed := takers(80, 81)
	weighed[1].Weight = 3
	for name, test := range map[string]struct {
		own, their []lb.ServiceTable
		want       string
	}{
		"equal": {webTable(1, takers(80)), webTable(1, takers(80)), ""},
		"one more there": {webTable(1, takers(80)), webTable(2, takers(80, 81)),
			"192.0.2.21:81 takes new flows at lb2 and not here"},
		"one more here": {webTable(1, takers(80, 81)), webTable(2, takers(80)),
			"192.0.2.21:81 takes new flows here and not at lb2"},
		"a weight": {webTable(1, takers(80, 81)), webTable(2, weighed),
			"192.0.2.21:81 has weight 1 here and 3 at lb2"},
		"the rest": {webTable(1, takers(80)), webTable(2, takers(80)),
			"the same backends by another scheduler, mode, hash, table size, persistence, list of clients or limit"},
		"not here":  {nil, webTable(2, takers(80)), "only lb2 has the service, tcp 198.51.100.80:80"},
		"not there": {webTable(2, takers(80)), nil, "lb2 does not have the service"},
		"too many":  {webTable(1, nil), webTable(2, nil), ""},
	} {
		got := ""
		list := differences(tableStates(test.own), &state{Name: "lb2", Tables: tableStates(test.their)})
		for _, d := range list {
			got += d.detail
		}
		if got != test.want || (len(list) > 0) == (name == "equal") {
			t.Errorf("%s: %v, want %q", name, list, test.want)
		}
	}
}

// TestLongStates: 65,536 services fit, without their backends.
func TestLongStates(t *testing.T) {
	table := webTable(1, takers(80))[0]
	s := state{Format: messageFormat, Name: "lb2", Tables: tableStates(slices.Repeat([]lb.ServiceTable{table}, 65536))}
	text := s.encode()
	read, err := decodeState(text)
	if err != nil || len(read.Tables) != 65536 || read.Tables[0].Complete {
		t.Errorf("%d bytes: %v", len(text), err)
	}
}

func FuzzState(f *testing.F) {
	f.Add(state{Format: messageFormat, Name: "lb2", Instance: 7, Sequence: 1,
		Tables: tableStates(webTable(1, takers(80, 81)))}.encode())
	f.Add([]byte(`{"format":1,"name":"x","tables":[{"digest":"zz"}]}`))
	own := tableStates(webTable(1, takers(80)))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := decodeState(text)
		if err != nil {
			return
		}
		differences(own, s)
		if again, err := decodeState(s.encode()); err != nil || again.Name != s.Name ||
			len(again.Tables) != len(s.Tables) {
			t.Errorf("%q is read again as %v: %v", text, again, err)
		}
	})
}

func FuzzGreeting(f *testing.F) {
	f.Add([]byte(`{"format":1,"instance":7,"version":"1.2.3"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if g, err := decodeGreeting(text); err == nil && len(g.Version) > maxText {
			t.Error("too long a version")
		}
	})
}
