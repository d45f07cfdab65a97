// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// Faults of networks, and hostile hosts on them: cuts, repeated messages, two hosts of one name, floods.

// recordingTransport is a transport that records the datagrams that come, and loses packets of some addresses.
type recordingTransport struct {
	memberlist.NodeAwareTransport
	packets chan *memberlist.Packet
	streams chan net.Conn
	stop    chan struct{}
	group   sync.WaitGroup

	mu       sync.Mutex
	recorded []datagram
	blocked  map[netip.Addr]bool
	// frozen has connections accepted and not read.
	frozen bool
	held   []net.Conn
}

// withLongTimeouts has a member that is only late on a busy machine not taken for one that has failed.
func withLongTimeouts(o *Options) {
	tune := o.tuneConfig
	o.tuneConfig = func(c *memberlist.Config) {
		tune(c)
		c.SuspicionMult = 300
	}
}

// datagram is a datagram that came, with its source.
type datagram struct {
	from netip.Addr
	text []byte
}

// withRecorder has a member talk over a link that the test has in hand.
func withRecorder(l *recordingTransport) func(*Options) {
	return func(o *Options) {
		o.wrap = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
			l.NodeAwareTransport = inner
			l.packets, l.streams, l.stop = make(chan *memberlist.Packet), make(chan net.Conn), make(chan struct{})
			l.group.Go(l.forward)
			return l
		}
	}
}

// block drops the packets of some addresses, and of no others.
func (l *recordingTransport) block(from ...netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = map[netip.Addr]bool{}
	for _, a := range from {
		l.blocked[a] = true
	}
}

// freeze has all further connections accepted, and never read.
func (l *recordingTransport) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = true
}

// holds keeps a connection if the transport is frozen.
func (l *recordingTransport) holds(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen {
		l.held = append(l.held, c)
	}
	return l.frozen
}

func (l *recordingTransport) isBlocked(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, err := netip.ParseAddrPort(address)
	return err == nil && l.blocked[at.Addr()]
}

// datagramsFrom are the datagrams that came from an address.
func (l *recordingTransport) datagramsFrom(from netip.Addr) (texts [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.recorded {
		if d.from == from {
			texts = append(texts, d.text)
		}
	}
	return texts
}

func (l *recordingTransport) forward() {
	for {
		select {
		case p := <-l.NodeAwareTransport.PacketCh():
			if l.isBlocked(p.From.String()) {
				continue
			}
			from, _ := netip.ParseAddrPort(p.From.String())
			l.mu.Lock()
			l.recorded = append(l.recorded, datagram{from.Addr(), bytes.Clone(p.Buf)})
			l.mu.Unlock()
			select {
			case l.packets <- p:
			case <-l.stop:
				return
			}
		case c := <-l.NodeAwareTransport.StreamCh():
			if l.isBlocked(c.RemoteAddr().String()) {
				c.Close()
				continue
			}
			if l.holds(c) {
				continue
			}
			select {
			case l.streams <- c:
			case <-l.stop:
				c.Close()
				return
			}
		case <-l.stop:
			return
		}
	}
}

func (l *recordingTransport) PacketCh() <-chan *memberlist.Packet { return l.packets }
func (l *recordingTransport) StreamCh() <-chan net.Conn           { return l.streams }

func (l *recordingTransport) WriteToAddress(packet []byte, to memberlist.Address) (time.Time, error) {
	if l.isBlocked(to.Addr) {
		return time.Now(), nil
	}
	return l.NodeAwareTransport.WriteToAddress(packet, to)
}

func (l *recordingTransport) Shutdown() error {
	close(l.stop)
	l.group.Wait()
	for _, c := range l.held {
		c.Close()
	}
	// Packets that it still hands over are taken, for it waits for that.
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-l.NodeAwareTransport.PacketCh():
			case c := <-l.NodeAwareTransport.StreamCh():
				c.Close()
			case <-done:
				return
			}
		}
	}()
	return l.NodeAwareTransport.Shutdown()
}

// send sends datagrams from an address to a member.
func (n *network) send(from netip.Addr, to *testMember, texts ...[]byte) {
	for _, text := range texts {
		if err := n.fake.send(netip.AddrPortFrom(from, 40_000), to.opt.Listen.String(), text); err != nil {
			n.t.Fatal(err)
		}
	}
}

// send sends datagrams by the kernel's network.
func send(t *testing.T, from netip.Addr, to *testMember, texts ...[]byte) {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: from.AsSlice()}, net.UDPAddrFromAddrPort(to.opt.Listen))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range texts {
		if _, err := conn.Write(text); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayedDatagrams: all that a member ever sent, sent again from its address, brings back neither the process that
// it was of, nor one that has left, also when memberlist has forgotten it.
func TestReplayedDatagrams(t *testing.T) {
	inBubble(t, testReplayedDatagrams)
}

func testReplayedDatagrams(t *testing.T, n *network) {
	var wire recordingTransport
	forgets := func(o *Options) {
		withRecorder(&wire)(o)
		tune := o.tuneConfig
		o.tuneConfig = func(c *memberlist.Config) {
			tune(c)
			c.GossipToTheDeadTime = time.Millisecond
		}
	}
	one, other := n.start(1, 2, forgets), n.start(2, 2, nil)
	eventually(t, "they have each other's state, by datagrams", func() bool {
		return one.hasReported("lb2") && other.hasReported("lb1") && len(wire.datagramsFrom(n.address(2))) >= 20
	})
	other.end(false)
	eventually(t, "the first misses the second", func() bool { return one.hasMember("lb2", ops.MemberFailed) })
	other = n.start(2, 2, func(o *Options) { o.Version = "1.2.4" })
	second := func() ops.Member { return one.Status().Members[0] }
	eventually(t, "the first has the state of the second's next process", func() bool {
		return one.hasReported("lb2") && second().Version == "1.2.4"
	})
	recorded := wire.datagramsFrom(n.address(2))
	n.send(n.address(2), one, recorded...)
	// A state sent after the recording is received after it.
	other.set(func(l *Local) { l.Configuration = "decaf" })
	eventually(t, "the first has the second's state", func() bool { return second().Configuration == "decaf" })
	if is := second(); is.Version != "1.2.4" || is.State != ops.MemberAlive {
		t.Errorf("after a recording of the process before, the first has %+v", is)
	}

	other.end(true)
	eventually(t, "the second has left", func() bool { return one.hasMember("lb2", ops.MemberLeft) })
	// memberlist forgets it after a round of probes, of which nothing is seen.
	recorded = wire.datagramsFrom(n.address(2))
	begun, before := time.Now(), len(recorded)
	eventually(t, "the recording has come, over several rounds", func() bool {
		n.send(n.address(2), one, recorded...)
		return time.Since(begun) > 2*time.Second && len(wire.datagramsFrom(n.address(2))) > before+len(recorded)
	})
	if one.log.count("lb2 ("+n.address(2).String()) != 4 || !one.hasMember("lb2", ops.MemberLeft) || len(one.Peers()) > 0 {
		t.Errorf("after a recording of one that has left, the first has %+v, and its log is\n%s", one.Status().Members,
			one.log.text.String())
	}
}

// TestPartition: of three, one is cut off; each side goes on with those that it reaches, and they find each other
// again.
func TestPartition(t *testing.T) {
	inBubble(t, testPartition)
}

func testPartition(t *testing.T, n *network) {
	var wires [3]recordingTransport
	var all []*testMember
	for i := range wires {
		all = append(all, n.start(byte(i+1), 3, withRecorder(&wires[i])))
	}
	whole := func() bool {
		for i, m := range all {
			for j := range all {
				if i != j && !m.hasReported(fmt.Sprintf("lb%d", j+1)) {
					return false
				}
			}
		}
		return true
	}
	eventually(t, "all have each other's state", whole)
	for range 2 {
		wires[0].block(n.address(2), n.address(3))
		wires[1].block(n.address(1))
		wires[2].block(n.address(1))
		eventually(t, "the first misses both", func() bool {
			return all[0].hasMember("lb2", ops.MemberFailed) && all[0].hasMember("lb3", ops.MemberFailed)
		})
		eventually(t, "both miss the first", func() bool {
			return all[1].hasMember("lb1", ops.MemberFailed) && all[2].hasMember("lb1", ops.MemberFailed)
		})
		eventually(t, "each side has those that it reaches", func() bool {
			return all[1].hasReported("lb3") && all[2].hasReported("lb2") && len(all[0].Peers()) == 0 && len(all[1].Peers()) == 1
		})
		eventually(t, "the first, cut off, says so", func() bool { return len(Problems(all[0].Status())) == 2 })
		for i := range wires {
			wires[i].block()
		}
		eventually(t, "all have each other's state again", whole)
	}
	eventually(t, "all is well", func() bool { return len(Problems(all[0].Status())) == 0 })
}

// TestFrozenMember: a member that accepts connections and reads none keeps no state from others, and does not delay the
// end of the one that sends to it.
func TestFrozenMember(t *testing.T) {
	inBubble(t, testFrozenMember)
}

func testFrozenMember(t *testing.T, n *network) {
	var wire recordingTransport
	tuned := func(o *Options) {
		withLongTimeouts(o)
		tune := o.tuneConfig
		o.tuneConfig = func(c *memberlist.Config) {
			tune(c)
			c.PushPullInterval = 0 // it would carry the state, too
		}
	}
	one := n.start(1, 3, tuned)
	n.start(2, 3, func(o *Options) { tuned(o); withRecorder(&wire)(o) })
	third := n.start(3, 3, tuned)
	eventually(t, "the first has all states, and the third its", func() bool {
		return one.hasReported("lb2") && one.hasReported("lb3") && third.hasReported("lb1")
	})
	wire.freeze()
	one.set(func(l *Local) { l.Drained = true })
	eventually(t, "the third knows that the first is drained", func() bool {
		return slices.ContainsFunc(third.Status().Members, func(is ops.Member) bool {
			return is.Name == "lb1" && is.Drained
		})
	})
	expectEnd(t, one, "while a member does not read")
}

// expectEnd ends a member, which must be at once.
func expectEnd(t *testing.T, m *testMember, when string) {
	t.Helper()
	began := time.Now()
	m.end(false)
	if took := time.Since(began); took > time.Second {
		t.Errorf("%s, the end takes %s", when, took)
	}
}

// TestUnansweredDial: a host that answers no SYN does not delay the end of a member that tries to reach it.
func TestUnansweredDial(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		one := n.start(1, 2, func(o *Options) {
			o.network = func(c *memberlist.NetTransportConfig) (memberlist.NodeAwareTransport, dial, error) {
				transport, _, err := n.fake.listen(c)
				return transport, unanswered, err
			}
		})
		<-time.After(time.Second)
		expectEnd(t, one, "while a host does not answer")
	})
}

// unanswered is a dial to a host that does not answer.
func unanswered(ctx context.Context, _ netip.Addr, _ string, timeout time.Duration) (net.Conn, error) {
	if err := clock.Sleep(ctx, timeout); err != nil {
		return nil, err
	}
	return nil, syscall.ETIMEDOUT
}

// TestEqualNames: two members of one name are found and named by both and by a third, which goes on with the one that
// it has; with a name of its own, the other is a member.
func TestEqualNames(t *testing.T) {
	inBubble(t, testEqualNames)
}

func testEqualNames(t *testing.T, n *network) {
	named := func(name string) func(*Options) { return func(o *Options) { o.Name = name } }
	third, one := n.start(1, 3, withLongTimeouts), n.start(2, 3, withLongTimeouts)
	eventually(t, "the third has the first's state", func() bool { return third.hasReported("lb2") && one.hasReported("lb1") })
	other := n.start(3, 3, named("lb2"))
	same := func(m *testMember, at byte) bool {
		return slices.ContainsFunc(m.Status().Members, func(is ops.Member) bool {
			return is.State == ops.MemberUnknown && is.SameName == "lb2" &&
				is.Address == netip.AddrPortFrom(n.address(at), m.opt.Listen.Port()).String()
		}) && slices.ContainsFunc(Problems(m.Status()), func(p string) bool {
			return strings.Contains(p, "it has the name lb2, which the member at ")
		})
	}
	eventually(t, "all three name it", func() bool { return same(third, 3) && same(one, 3) && same(other, 2) })
	for _, m := range []*testMember{third, one, other} {
		if said := m.log.count("two members have the name lb2"); said != 1 {
			t.Errorf("%v says it %d times", m.opt.Listen, said)
		}
	}
	if peers := third.Peers(); len(peers) != 1 || peers[0].Address.Addr() != n.address(2) ||
		third.log.count("not reached any more") > 0 {
		t.Errorf("the third has the peers %v", peers)
	}
	other.end(false)
	n.start(3, 3, nil)
	eventually(t, "all have a name of their own", func() bool {
		return third.hasReported("lb2") && third.hasReported("lb3") && one.hasReported("lb3") && len(Problems(third.Status())) == 0 &&
			len(Problems(one.Status())) == 0
	})
}

// TestFloodOfUntrusted: datagrams and connections of very many unknown hosts neither part members nor fill memory or
// the log.
func TestFloodOfUntrusted(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	one, other := n.start(1, 2, withLongTimeouts), n.start(2, 2, withLongTimeouts)
	eventually(t, "they have each other's state", func() bool { return one.hasReported("lb2") && other.hasReported("lb1") })
	noise := bytes.Repeat([]byte("noise"), 200)
	untrusted := 2 * maxRemembered
	for i := range untrusted {
		from := netip.AddrFrom4([4]byte{127, n.base[0], n.base[1] + 1, byte(i)})
		if i >= 256 {
			from = netip.AddrFrom4([4]byte{127, n.base[0], n.base[1] + 1 ^ 128, byte(i)})
		}
		send(t, from, one, slices.Repeat([][]byte{noise}, 20)...)
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Timeout: testTimeout}
		conn, err := dialer.Dial("tcp", one.opt.Listen.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	eventually(t, "all connections are refused", func() bool { return one.Status().Refused >= uint64(untrusted) })
	one.set(func(l *Local) { l.Configuration = "decaf" })
	eventually(t, "the second has the first's state", func() bool {
		return other.Status().Members[0].Configuration == "decaf"
	})
	if lines := one.log.count("refused what"); lines > maxRemembered {
		t.Errorf("the log has %d lines of unknown hosts", lines)
	}
	one.logFilter.mu.Lock()
	defer one.logFilter.mu.Unlock()
	if len(one.logFilter.loggedAt) > maxRemembered {
		t.Errorf("%d unknown hosts are remembered", len(one.logFilter.loggedAt))
	}
	if one.log.count("not reached any more")+other.log.count("not reached any more") > 0 {
		t.Error("the members have lost each other")
	}
}
