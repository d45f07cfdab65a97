// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// fakeDataPlane is a data plane that only remembers.
type fakeDataPlane struct {
	mu      sync.Mutex
	flows   map[netip.AddrPort]lb.Flow
	changed []lb.Flow
	bases   []lb.Base
	taken   []lb.Base
	// lacks: the configuration that flows of others need is yet to come, and missed: there were such.
	lacks, missed bool
}

func newFakeDataPlane() *fakeDataPlane { return &fakeDataPlane{flows: map[netip.AddrPort]lb.Flow{}} }

func (m *fakeDataPlane) prove(flows ...lb.Flow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range flows {
		m.flows[f.Client] = f
	}
	m.changed = append(m.changed, flows...)
}

func (m *fakeDataPlane) has(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.flows) == n
}

// hasFlows reports whether it has n flows that provenFlows made.
func (m *fakeDataPlane) hasFlows(from, n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range provenFlows(from, n) {
		if _, known := m.flows[f.Client]; !known {
			return false
		}
	}
	return true
}

func (m *fakeDataPlane) hasBase() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.taken) > 0
}

func (m *fakeDataPlane) FlowPlaces() int { return 1000 }

func (m *fakeDataPlane) ChangedFlows(_ int, visit func(*lb.Flow)) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.changed {
		visit(&m.changed[i])
	}
	m.changed = nil
	return true, nil
}

func (m *fakeDataPlane) SnapshotFlows() lb.FlowWalk { return wholeWalk{m} }

type wholeWalk struct{ *fakeDataPlane }

func (w wholeWalk) Next(_ int, visit func(*lb.Flow)) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.flows {
		visit(&f)
	}
	return true, nil
}

func (m *fakeDataPlane) Bases() ([]lb.Base, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bases, nil
}

func (m *fakeDataPlane) MergeBase(b lb.Base) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = append(m.taken, b)
	return nil
}

func (m *fakeDataPlane) MergeFlows(flows []lb.Flow) (t lb.MergeResult, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.Refused = map[string]int{}
	for _, f := range flows {
		switch _, known := m.flows[f.Client]; {
		case m.lacks:
			t.Refused["unknown_backend"]++
			t.Missed++
			m.missed = true
		case f.State == lb.FlowOpening:
			t.Refused["unproven"]++
		case known:
			t.Known++
		default:
			t.New++
			m.flows[f.Client] = f
		}
	}
	return t, nil
}

func (m *fakeDataPlane) RetryMissed() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	retry := m.missed && !m.lacks
	m.missed = m.missed && m.lacks
	return retry, nil
}

// setLacking has it lack the services that flows of others need, or not any more.
func (m *fakeDataPlane) setLacking(lacks bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lacks = lacks
}

// fakeGroup is the list of members, as a test sets it.
type fakeGroup struct {
	mu      sync.Mutex
	peers   []lb.Peer
	changed chan struct{}
}

func newFakeGroup() *fakeGroup { return &fakeGroup{changed: make(chan struct{})} }

func (g *fakeGroup) Peers() []lb.Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peers
}

func (g *fakeGroup) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *fakeGroup) setPeers(peers ...lb.Peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peers = peers
	close(g.changed)
	g.changed = make(chan struct{})
}

// testMember is a member of a test.
type testMember struct {
	*Exchange
	memory *fakeDataPlane
	group  *fakeGroup
	peer   lb.Peer
	// begin has it work, and stop has it end.
	begin, stop func()
}

var testKey = bytes.Repeat([]byte{7}, 32)

// start has a member begin, alone at first.
func start(t *testing.T, name string, change func(*Options)) *testMember {
	t.Helper()
	b := prepare(t, name, change)
	b.begin()
	return b
}

// prepare makes a member that has yet to begin.
func prepare(t *testing.T, name string, change func(*Options)) *testMember {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &testMember{memory: newFakeDataPlane(), group: newFakeGroup(),
		peer: lb.Peer{Name: name, Address: netip.MustParseAddrPort(listener.Addr().String())}}
	options := Options{Name: name, Keys: [][]byte{testKey}, Listener: listener, Group: b.group, DataPlane: b.memory,
		Log: slog.New(slog.DiscardHandler), ScanInterval: 10 * time.Millisecond, JoinTimeout: time.Minute}
	if change != nil {
		change(&options)
	}
	if b.Exchange, err = New(options); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.begin = func() {
		go func() {
			defer close(done)
			b.Run(ctx)
		}()
		t.Cleanup(b.stop)
	}
	b.stop = func() { cancel(); <-done }
	return b
}

// connectAll has each of them know the others.
func connectAll(all ...*testMember) {
	for _, b := range all {
		var peers []lb.Peer
		for _, o := range all {
			if o != b {
				peers = append(peers, o.peer)
			}
		}
		b.group.setPeers(peers...)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(testenv.WaitLimit); !is(); {
		select {
		case <-end:
			t.Fatalf("there still is not: %s", what)
		case <-tick.C:
		}
	}
}

// provenFlows are n flows that are taken.
func provenFlows(from, n int) (flows []lb.Flow) {
	for i := from; len(flows) < n; i++ {
		f := testFlow(i, i%3 == 0)
		f.State = lb.FlowEstablished
		flows = append(flows, f)
	}
	return flows
}

// TestMembersSendEachOther: flows that two of them prove, all know; and one that comes later knows the earlier ones
// before it joins.
func TestMembersSendEachOther(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b", nil)
	a.memory.prove(provenFlows(0, 100)...)
	connectAll(a, b)
	b.memory.prove(provenFlows(1000, 100)...)
	a.memory.mu.Lock()
	a.memory.bases = []lb.Base{{Service: lb.ServiceKey{VIP: netip.MustParseAddr("198.18.0.1"), Port: 80,
		Protocol: lb.TCP}, Scheduler: lb.Maglev, Size: 251, Left: time.Minute,
		Backends: []lb.BaseBackend{{Identity: netip.MustParseAddrPort("198.18.2.1:80"),
			Endpoint: netip.MustParseAddrPort("198.18.2.1:80"), Share: 1, Weight: 1}}}}
	want := a.memory.bases[0]
	a.memory.mu.Unlock()
	eventually(t, "200 flows at both", func() bool { return a.memory.has(200) && b.memory.has(200) })
	eventually(t, "the base at the other", b.memory.hasBase)
	if got := b.memory.taken[0]; got.Service != want.Service || got.Size != want.Size || len(got.Backends) != 1 ||
		got.Backends[0] != want.Backends[0] {
		t.Errorf("the base is %+v, want %+v", got, want)
	}

	c := start(t, "c", nil)
	select {
	case <-c.Joined():
		t.Error("a member joins before it knows of others")
	default:
	}
	connectAll(a, b, c)
	<-c.Joined()
	if !c.memory.has(200) || !c.memory.hasBase() {
		t.Error("a member has joined, and does not know what there was")
	}
	eventually(t, "no peer behind", func() bool {
		sent, _ := a.Status()
		return len(sent) == 2 && sent[0].Connected && sent[0].Behind == 0 && sent[1].Behind == 0
	})
	// One that has gone is sent nothing, and all flows when it is back.
	b.stop()
	a.memory.prove(provenFlows(2000, 10)...)
	eventually(t, "210 flows at the third", func() bool { return c.memory.has(210) })
	_, received := c.Status()
	if len(received) != 2 || received[0].Name != "a" || received[0].Added == 0 {
		t.Errorf("received: %+v", received)
	}
	connectAll(a, c)
	eventually(t, "one peer", func() bool { sent, _ := a.Status(); return len(sent) == 1 })
}

// TestFlush: a flow that was proven just before is known to all peers that are connected when a flush returns, and one
// that does not answer holds it up for no longer than its context.
func TestFlush(t *testing.T) {
	rarely := func(o *Options) { o.ScanInterval, o.ScanPeriod = time.Hour, time.Hour }
	a, b, c := start(t, "a", rarely), start(t, "b", nil), start(t, "c", nil)
	connectAll(a, b, c)
	eventually(t, "connections", func() bool {
		sent, _ := a.Status()
		return len(sent) == 2 && sent[0].FullSyncs == 1 && sent[1].FullSyncs == 1
	})
	for round := range 20 {
		a.memory.prove(provenFlows(1000*round, 700)...)
		if err := a.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !b.memory.hasFlows(1000*round, 700) || !c.memory.hasFlows(1000*round, 700) {
			t.Errorf("round %d: a flush has returned, and not all is known", round)
		}
	}
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	a.memory.prove(provenFlows(100_000, 10)...)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a peer does not answer: %v", err)
	}
}

// TestRequestEarly: peers that are asked to send proven flows at once, do so for a while, and others send at their
// times.
func TestRequestEarly(t *testing.T) {
	rarely := func(o *Options) { o.ScanInterval, o.ScanPeriod = time.Hour, time.Hour }
	a, b, c := start(t, "a", rarely), start(t, "b", rarely), start(t, "c", rarely)
	connectAll(a, b, c)
	for _, m := range []*testMember{a, b, c} {
		eventually(t, "connections", func() bool {
			sent, received := m.Status()
			return len(sent) == 2 && sent[0].FullSyncs == 1 && sent[1].FullSyncs == 1 && len(received) == 2 &&
				received[0].Complete &&
				received[1].Complete
		})
	}
	a.memory.prove(provenFlows(0, 700)...)
	b.RequestEarly() // to a and c
	eventually(t, "what was proven before", func() bool { return b.memory.hasFlows(0, 700) })
	for round := 1; round < 10; round++ {
		a.memory.prove(provenFlows(1000*round, 700)...)
		eventually(t, "what is proven since", func() bool {
			return b.memory.hasFlows(1000*round, 700) && c.memory.hasFlows(1000*round, 700)
		})
	}
	b.memory.prove(provenFlows(100_000, 10)...)
	if a.memory.hasFlows(100_000, 10) {
		t.Error("one that was not asked sends early, too")
	}
	for _, test := range []struct {
		early      bool
		took, want time.Duration
	}{{false, time.Second, DefaultScanInterval}, {true, 0, earlyScanInterval},
		{true, 10 * time.Millisecond, 4 * 10 * time.Millisecond}, {true, time.Second, DefaultScanInterval}} {
		e := &Exchange{options: Options{}.withDefaults()}
		if got := e.scanPause(test.early, test.took); got != test.want {
			t.Errorf("%+v: the pause is %v", test, got)
		}
	}
}

// TestPeerThatWasHeldUp: one that was taken for gone, and has not noticed, sends by the connection that it has, and its
// flows are taken.
func TestPeerThatWasHeldUp(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b", nil)
	connectAll(a, b)
	receivedOf := func() bool {
		sent, received := a.Status()
		return len(sent) == 1 && sent[0].Connected && len(received) == 1 && received[0].Connected &&
			received[0].Complete
	}
	eventually(t, "both tell each other", receivedOf)
	a.group.setPeers()
	eventually(t, "no peer", func() bool { sent, _ := a.Status(); return len(sent) == 0 })
	connectAll(a, b)
	eventually(t, "both tell each other again", receivedOf)
	b.stop()
	a.group.setPeers()
	eventually(t, "nothing is known of one that has gone", func() bool {
		sent, received := a.Status()
		return len(sent)+len(received) == 0
	})
}

// TestPeerThatIsSlow: once more is queued than may be, it is sent all flows.
func TestPeerThatIsSlow(t *testing.T) {
	a, b := start(t, "a", func(o *Options) { o.Queue = 2000 }), start(t, "b", nil)
	connectAll(a, b)
	eventually(t, "connections", func() bool { sent, _ := a.Status(); return len(sent) == 1 && sent[0].FullSyncs == 1 })
	a.memory.prove(provenFlows(0, 3000)...)
	eventually(t, "all flows", func() bool { return b.memory.has(3000) })
	eventually(t, "an overflow, and all anew", func() bool {
		sent, _ := a.Status()
		return sent[0].Overflows > 0 && sent[0].FullSyncs > 1
	})
}

// TestUntrustedPeers: a host with another key, without TLS, or that sends nothing, gets no flows, and none of its own
// are taken.
func TestUntrustedPeers(t *testing.T) {
	a := start(t, "a", func(o *Options) { o.JoinTimeout = 10 * time.Millisecond })
	untrusted := start(t, "b", func(o *Options) { o.Keys = [][]byte{bytes.Repeat([]byte{8}, 32)} })
	untrusted.memory.prove(provenFlows(0, 5)...)
	a.memory.prove(provenFlows(100, 5)...)
	connectAll(a, untrusted)
	eventually(t, "a refusal", func() bool {
		sent, _ := a.Status()
		return len(sent) == 1 && errors.Is(sent[0].Failed, ErrUntrusted)
	})
	<-a.Joined() // JoinTimeout is over
	if !a.memory.has(5) || !untrusted.memory.has(5) {
		t.Error("flows were handed over")
	}
	for name, say := range map[string]func(net.Conn){
		"nothing":            func(net.Conn) {},
		"no TLS":             func(c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100)) },
		"TLS, without a key": func(c net.Conn) { _ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() },
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", a.peer.Address.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			say(conn)
		})
	}
	if _, received := a.Status(); len(received) != 0 {
		t.Errorf("received: %v", received)
	}
}

// TestMembersThatContradict: another version, its own name, a flow where none belongs.
func TestMembersThatContradict(t *testing.T) {
	a := start(t, "a", nil)
	config, err := identity(testKey)
	if err != nil {
		t.Fatal(err)
	}
	flow := testFlow(1, false)
	body, _ := appendFlow(nil, &flow)
	for name, say := range map[string][]byte{
		"another version": append([]byte{version + 1}, appendMessage(nil, kindHello, []byte(`{"name":"b"}`))[1:]...),
		"its own name":    appendMessage(nil, kindHello, []byte(`{"name":"a"}`)),
		"no name":         appendMessage(nil, kindHello, []byte(`{}`)),
		"a flow at first": appendMessage(nil, kindFlows4, body),
		"half a flow": append(appendMessage(nil, kindHello, []byte(`{"name":"b"}`)),
			appendMessage(nil, kindFlows4, body[1:])...),
		"too much": append(appendMessage(nil, kindHello, []byte(`{"name":"b"}`)), version, byte(kindBase), 0, 0,
			255, 255, 255, 255),
		"a base that is none": append(appendMessage(nil, kindHello, []byte(`{"name":"b"}`)),
			appendMessage(nil, kindBase, []byte("[]"))...),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", a.peer.Address.String(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(say); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(testenv.WaitLimit)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) {
				t.Error("the connection goes on")
			}
		})
	}
	if !a.memory.has(0) {
		t.Error("a flow was taken")
	}
}

// TestPeerThatComesBack: one whose process ended and began again, and was not missed meanwhile, is sent flows as soon
// as it is seen: by its own connection, or as a member; not when the next attempt to connect was due.
func TestPeerThatComesBack(t *testing.T) {
	for name, seen := range map[string]func(a, b *testMember){
		"by its connection": func(a, b *testMember) { b.group.setPeers(a.peer) },
		"as a member":       func(a, b *testMember) { a.group.setPeers(b.peer) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := start(t, "a", func(o *Options) { o.minBackoff = time.Hour }), start(t, "b", nil)
			connectAll(a, b)
			eventually(t, "a connection", func() bool {
				sent, _ := a.Status()
				return len(sent) == 1 && sent[0].FullSyncs == 1
			})
			a.memory.prove(provenFlows(0, 10)...)
			b.stop()
			eventually(t, "an attempt that fails", func() bool {
				sent, _ := a.Status()
				return !sent[0].Connected && sent[0].Failed != nil
			})
			b = prepare(t, "b", func(o *Options) {
				o.Listener.Close()
				listener, err := net.Listen("tcp", b.peer.Address.String())
				if err != nil {
					t.Fatal(err)
				}
				o.Listener = listener
			})
			b.peer.Address = netip.MustParseAddrPort(b.options.Listener.Addr().String())
			b.begin()
			seen(a, b)
			eventually(t, "what the other knows", func() bool { return b.memory.has(10) })
		})
	}
}

// TestKeysRotate: two get another key by the steps of members, with flows sent all the while; connections end when the
// key that they were made by is no longer accepted, and are recreated.
func TestKeysRotate(t *testing.T) {
	old, fresh := testKey, bytes.Repeat([]byte{9}, 32)
	a, b := start(t, "a", nil), start(t, "b", nil)
	connectAll(a, b)
	proven := 0
	sendChanges := func(when string) {
		t.Helper()
		a.memory.prove(provenFlows(proven, 10)...)
		proven += 10
		eventually(t, "the flows, "+when, func() bool { return b.memory.has(proven) })
	}
	sendChanges("with the old key")
	for i, keys := range [][][]byte{{old, fresh}, {fresh, old}, {fresh}} {
		for _, x := range []*testMember{a, b} {
			use, err := x.PrepareKeys(keys)
			if err != nil {
				t.Fatal(err)
			}
			use()
			sendChanges(fmt.Sprintf("after step %d at one", i+1))
		}
	}
	eventually(t, "both tell each other by the fresh key", func() bool {
		sentA, receivedA := a.Status()
		sentB, receivedB := b.Status()
		return len(sentA) == 1 && sentA[0].Connected && len(sentB) == 1 && sentB[0].Connected && len(receivedA) == 1 &&
			receivedA[0].Connected && len(receivedB) == 1 && receivedB[0].Connected
	})
	for _, x := range []*testMember{a, b} {
		x.mu.Lock()
		for _, state := range x.authenticated {
			if err := x.tls.VerifyConnection(state); err != nil {
				t.Errorf("a connection by the old key goes on: %v", err)
			}
		}
		if len(x.authenticated) > 4 {
			t.Errorf("%d connections are noted", len(x.authenticated))
		}
		x.mu.Unlock()
	}
	if _, err := a.PrepareKeys(nil); err == nil {
		t.Error("no key is taken for some")
	}
}

// TestMissedFlowsAreSentAgain: flows that a member has refused, because a change had not reached it yet, it knows after
// that change.
func TestMissedFlowsAreSentAgain(t *testing.T) {
	t.Parallel()
	a, b, c := start(t, "a", nil), start(t, "b", nil), start(t, "c", nil)
	connectAll(a, b, c)
	eventually(t, "connections", func() bool {
		sent, _ := a.Status()
		return len(sent) == 2 && sent[0].FullSyncs == 1 && sent[1].FullSyncs == 1
	})
	for round := range 2 { // the second time, within the pause
		b.memory.setLacking(true)
		a.memory.prove(provenFlows(100*round, 100)...)
		eventually(t, "flows that are refused", func() bool {
			_, received := b.Status()
			return len(received) == 2 && received[0].Refused["unknown_backend"] >= uint64(100*(round+1))
		})
		b.memory.setLacking(false)
		eventually(t, "all flows after the change", func() bool { return b.memory.has(100 * (round + 1)) })
	}
	sent, _ := a.Status()
	if sent[0].Peer.Name != "b" || sent[0].FullSyncs < 2 || sent[1].FullSyncs != 1 {
		t.Errorf("the peer that has missed flows gets all of them again, and no other peer does: %+v", sent)
	}
}
