// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Hostile input: from hosts that are no members, from broken members, and from networks that cut, change and repeat
// messages.

// refusals are the errors for which a member has refused connections, by the peer's address.
type refusals struct {
	mu   sync.Mutex
	from map[netip.Addr][]error
}

func (r *refusals) record(from netip.Addr, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from == nil {
		r.from = map[netip.Addr][]error{}
	}
	r.from[from] = append(r.from[from], why)
}

// has reports whether something was refused for that reason.
func (r *refusals) has(from netip.Addr, why error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.from[from] {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

var (
	localhost        = netip.MustParseAddr("127.0.0.1")
	untrustedAddress = netip.MustParseAddr("127.0.0.9")
)

// dialFrom connects to a member from an address.
func dialFrom(t *testing.T, from netip.Addr, to *testMember) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Timeout: testenv.WaitLimit}
	conn, err := dialer.Dial("tcp", to.peer.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// dialAuthenticated has the members' key, and says something; it returns once the member has ended the connection, or
// with it open.
func dialAuthenticated(t *testing.T, conn net.Conn, says []byte) *tls.Conn {
	t.Helper()
	config, err := identity(testKey)
	if err != nil {
		t.Fatal(err)
	}
	secured := tls.Client(conn, config)
	if err := secured.SetDeadline(time.Now().Add(testenv.WaitLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := secured.Write(says); err != nil {
		t.Fatal(err)
	}
	return secured
}

// TestFloodOfUntrusted: connections from addresses that are no member's are closed at once, however many, and leave
// members their places.
func TestFloodOfUntrusted(t *testing.T) {
	var refused refusals
	a := start(t, "a", func(o *Options) {
		o.IsPeer, o.Refused = func(from netip.Addr) bool { return from == localhost }, refused.record
	})
	for range 4 * maxConnections {
		dialFrom(t, untrustedAddress, a)
	}
	b := start(t, "b", nil)
	b.memory.prove(provenFlows(0, 10)...)
	connectAll(a, b)
	eventually(t, "the flows of a member", func() bool { return a.memory.has(10) })
	eventually(t, "a refusal of unknown hosts", func() bool { return refused.has(untrustedAddress, ErrNoPeer) })
	if len(refused.from[localhost]) > 0 {
		t.Errorf("a member was refused: %v", refused.from[localhost])
	}
}

// TestPeerRemoved: the connection of an address that was a peer's is closed when it is none's any more.
func TestPeerRemoved(t *testing.T) {
	var gone atomic.Bool
	a := start(t, "a", func(o *Options) { o.IsPeer = func(netip.Addr) bool { return !gone.Load() } })
	b := start(t, "b", nil)
	connectAll(a, b)
	eventually(t, "the peer", func() bool { _, received := a.Status(); return len(received) == 1 && received[0].Complete })
	gone.Store(true)
	connectAll(a)
	eventually(t, "the end of what it tells", func() bool {
		sent, received := a.Status()
		return len(sent)+len(received) == 0
	})
}

// TestAnotherMembersName: a host with the key and the name of a member that is elsewhere is refused, and that member
// goes on.
func TestAnotherMembersName(t *testing.T) {
	var refused refusals
	a := start(t, "a", func(o *Options) { o.Refused = refused.record })
	b := start(t, "b", nil)
	connectAll(a, b)
	eventually(t, "the member", func() bool { _, received := a.Status(); return len(received) == 1 && received[0].Complete })
	conn := dialAuthenticated(t, dialFrom(t, untrustedAddress, a), appendMessage(nil, kindHello,
		[]byte(`{"name":"b"}`)))
	_, _ = io.Copy(io.Discard, conn)
	eventually(t, "a refusal", func() bool { return refused.has(untrustedAddress, ErrName) })
	if _, received := a.Status(); len(received) != 1 || !received[0].Connected || !received[0].Complete {
		t.Errorf("the member is received as %+v", received)
	}
}

// TestNamesOfNoMember are forgotten with their connection.
func TestNamesOfNoMember(t *testing.T) {
	a := start(t, "a", nil)
	for _, name := range []string{"x", "y", "z"} {
		conn := dialAuthenticated(t, dialFrom(t, untrustedAddress, a), appendMessage(nil, kindHello,
			[]byte(`{"name":"`+name+`"}`)))
		eventually(t, "it is received", func() bool {
			_, received := a.Status()
			return len(received) == 1 && received[0].Name == name
		})
		conn.Close()
		eventually(t, "it is forgotten", func() bool { _, received := a.Status(); return len(received) == 0 })
	}
}

// TestPeerThatStopsReading: it is given up after a while and sent all flows again, and others are sent theirs
// meanwhile.
func TestPeerThatStopsReading(t *testing.T) {
	a, c := start(t, "a", func(o *Options) { o.stallTimeout = 100 * time.Millisecond; o.Queue = 1 << 20 }),
		start(t, "c", nil)
	config, err := identity(testKey)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections := make(chan struct{}, 100)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4096)
			secured := tls.Server(conn, config)
			if writeHello(secured, "b") == nil {
				_, _ = readHello(secured)
			}
			t.Cleanup(func() { conn.Close() })
			connections <- struct{}{}
		}
	})
	t.Cleanup(group.Wait)
	t.Cleanup(func() { listener.Close() })
	a.memory.prove(provenFlows(0, 60000)...)
	a.group.setPeers(c.peer, lb.Peer{Name: "b", Address: netip.MustParseAddrPort(listener.Addr().String())})
	c.group.setPeers(a.peer)
	eventually(t, "all flows at the other", func() bool { return c.memory.has(60000) })
	// How much the kernel takes for a peer that reads nothing is its own affair.
	proven := 60000
	eventually(t, "a connection", func() bool { return len(connections) > 0 })
	// Once more where this process stood still: then the other was given up, too.
	eventually(t, "one is given up, and the other is not", func() bool {
		before := len(connections)
		eventually(t, "another connection, as the one before was given up", func() bool {
			a.memory.prove(provenFlows(proven, 100)...)
			proven += 100
			return len(connections) > before
		})
		sent, _ := a.Status()
		return len(sent) == 2 && sent[1].Peer.Name == "c" && sent[1].Connected
	})
	if sent, _ := a.Status(); sent[1].Overflows+sent[0].Overflows > 2 {
		t.Errorf("sent: %+v", sent)
	}
	s := a.senders["b"]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 1<<20 {
		t.Errorf("%d bytes wait", len(s.queue))
	}
}

// TestPeerOfAnotherVersion: both sides report it, and are sent no flows.
func TestPeerOfAnotherVersion(t *testing.T) {
	var refused refusals
	a := start(t, "a", func(o *Options) { o.Refused = refused.record })
	a.memory.prove(provenFlows(0, 10)...)
	config, err := identity(testKey)
	if err != nil {
		t.Fatal(err)
	}
	later := append([]byte{version + 1}, appendMessage(nil, kindHello, []byte(`{"name":"b"}`))[1:]...)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	received := make(chan []byte, 100)
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(later)
			all, _ := io.ReadAll(conn)
			conn.Close()
			received <- all
		}
	})
	t.Cleanup(group.Wait)
	t.Cleanup(func() { listener.Close() })
	a.group.setPeers(lb.Peer{Name: "b", Address: netip.MustParseAddrPort(listener.Addr().String())})
	eventually(t, "the version is named", func() bool {
		sent, _ := a.Status()
		return len(sent) == 1 && errors.Is(sent[0].Failed, ErrVersion)
	})
	if got := <-received; !bytes.Equal(got, appendMessage(nil, kindHello, []byte(`{"name":"a"}`))) {
		t.Errorf("it was sent %q", got)
	}
	_, _ = io.Copy(io.Discard, dialAuthenticated(t, dialFrom(t, localhost, a), later))
	eventually(t, "the refusal", func() bool { return refused.has(localhost, ErrVersion) })
}

// TestClocksApart: one member's clock is years behind, and the other's decades ahead.
func TestClocksApart(t *testing.T) {
	apart := func(by time.Duration) func(b *testMember) {
		return func(b *testMember) { b.tls.Time = func() time.Time { return time.Now().Add(by) } }
	}
	a, b := prepare(t, "a", nil), prepare(t, "b", nil)
	apart(-3 * 365 * 24 * time.Hour)(a)
	apart(30 * 365 * 24 * time.Hour)(b)
	a.begin()
	b.begin()
	a.memory.prove(provenFlows(0, 10)...)
	b.memory.prove(provenFlows(100, 10)...)
	connectAll(a, b)
	eventually(t, "all flows at both", func() bool { return a.memory.has(20) && b.memory.has(20) })
}

// TestCutFromEachOther: two that cannot reach each other, and a third that reaches both. All is everywhere once they
// reach each other.
func TestCutFromEachOther(t *testing.T) {
	a, b, c := start(t, "a", nil), start(t, "b", nil), start(t, "c", nil)
	a.group.setPeers(c.peer)
	b.group.setPeers(c.peer)
	c.group.setPeers(a.peer, b.peer)
	a.memory.prove(provenFlows(0, 10)...)
	b.memory.prove(provenFlows(100, 10)...)
	c.memory.prove(provenFlows(200, 10)...)
	eventually(t, "all flows at the third", func() bool { return c.memory.has(30) })
	eventually(t, "the third's at both", func() bool {
		return a.memory.hasFlows(200, 10) && b.memory.hasFlows(200,
			10)
	})
	connectAll(a, b, c)
	eventually(t, "all flows everywhere", func() bool {
		return a.memory.has(30) && b.memory.has(30) && c.memory.has(30)
	})
}

// relay is a network between a member and its peer, which may change or record the bytes that pass.
type relay struct {
	peer lb.Peer
	mu   sync.Mutex
	// forge changes bytes from the member, on the connection of that number.
	forge func(connection int, data []byte)
	// recorded are the bytes that came from the member, by connection.
	recorded []*bytes.Buffer
}

func (r *relay) forward(t *testing.T, to netip.AddrPort, name string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.peer = lb.Peer{Name: name, Address: netip.MustParseAddrPort(listener.Addr().String())}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	t.Cleanup(cancel)
	context.AfterFunc(ctx, func() { listener.Close() })
	group.Go(func() {
		for n := 0; ; n++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			on, err := net.Dial("tcp", to.String())
			if err != nil {
				from.Close()
				continue
			}
			context.AfterFunc(ctx, func() { from.Close(); on.Close() })
			r.mu.Lock()
			record := &bytes.Buffer{}
			r.recorded = append(r.recorded, record)
			r.mu.Unlock()
			group.Go(func() { defer from.Close(); _, _ = io.Copy(from, on) })
			group.Go(func() { defer on.Close(); r.copyBytes(n, record, from, on) })
		}
	})
}

func (r *relay) copyBytes(n int, record *bytes.Buffer, from io.Reader, to io.Writer) {
	data := make([]byte, 16384)
	for {
		got, err := from.Read(data)
		r.mu.Lock()
		record.Write(data[:got])
		if r.forge != nil {
			r.forge(n, data[:got])
		}
		r.mu.Unlock()
		if _, failed := to.Write(data[:got]); err != nil || failed != nil {
			return
		}
	}
}

// TestChangedInTransit: a byte that was changed ends the connection, and all flows are sent by the next one.
func TestChangedInTransit(t *testing.T) {
	t.Parallel()
	var refused refusals
	a, b := start(t, "a", nil), start(t, "b", func(o *Options) { o.Refused = refused.record })
	seen := map[int]int{}
	between := &relay{forge: func(connection int, data []byte) {
		// The first connections, each further on: in the handshake, after it, in the midst of flows.
		at := []int{100, 3000, 30000}
		if before := seen[connection]; connection < len(at) && at[connection] >= before &&
			at[connection] < before+len(data) {
			data[at[connection]-before] ^= 0x10
		}
		seen[connection] += len(data)
	}}
	between.forward(t, b.peer.Address, "b")
	a.memory.prove(provenFlows(0, 5000)...)
	a.group.setPeers(between.peer)
	eventually(t, "all flows", func() bool { return b.memory.has(5000) })
	eventually(t, "a refusal", func() bool {
		refused.mu.Lock()
		defer refused.mu.Unlock()
		return len(refused.from[localhost]) > 0
	})
	between.mu.Lock()
	defer between.mu.Unlock()
	if len(between.recorded) < 4 {
		t.Errorf("%d connections, want four", len(between.recorded))
	}
}

// TestRepeatedAndCutShort: bytes recorded from a connection mean nothing in another one, whole or in part.
func TestRepeatedAndCutShort(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b", nil)
	between := &relay{}
	between.forward(t, b.peer.Address, "b")
	a.memory.prove(provenFlows(0, 100)...)
	a.group.setPeers(between.peer)
	eventually(t, "all flows", func() bool { return b.memory.has(100) })
	between.mu.Lock()
	record := bytes.Clone(between.recorded[0].Bytes())
	between.mu.Unlock()
	a.stop()
	eventually(t, "the end of what it tells", func() bool { _, received := b.Status(); return len(received) == 0 })
	b.memory.mu.Lock()
	clear(b.memory.flows)
	b.memory.mu.Unlock()
	for _, part := range [][]byte{record, record[:len(record)/2], record[:300], record[:3], record[len(record)/2:]} {
		conn := dialFrom(t, localhost, b)
		_, _ = conn.Write(part)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(testenv.WaitLimit))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) {
			t.Error("the connection goes on")
		}
	}
	if !b.memory.has(0) {
		t.Error("flows of a recording were taken")
	}
}
