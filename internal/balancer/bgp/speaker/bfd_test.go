// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/bfd"
	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// bfdInterval is the interval of packets, of which 3 may be missing: one that a busy machine bears, unless the variable
// has another for a measurement.
var bfdInterval = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("JEOUL_TEST_BFD_INTERVAL")); err == nil {
		return d
	}
	return lb.DefaultBFDInterval
}()

// birdProtocol is BIRD's half of BFD, and birdBFD that of a session whose hold time is one within which nothing but BFD
// notices anything.
var (
	birdProtocol = fmt.Sprintf("protocol bfd bfd1 { interface \"b*\" { interval %d ms; multiplier 3; }; }\n",
		bfdInterval.Milliseconds())
	birdBFD = birdProtocol +
		"protocol bgp b1 from speaker { neighbor 198.18.1.2 as 64512; hold time 240; bfd on; }\n"
)

// desiredWithBFD is the desired state of a speaker behind link n, with BFD.
func desiredWithBFD(n int, vips ...string) bgp.Desired {
	w := desiredVIPs(n, vips...)
	w.BGP.Peers[0].HoldTime = 240 * time.Second
	w.BGP.Peers[0].BFD = lb.BFD{On: true, Interval: bfdInterval, Multiplier: 3}
	return w
}

// isUp reports whether BFD and BGP are.
func isUp(p ops.BGPPeer) bool {
	return p.State == ops.BGPEstablished && p.BFD != nil && p.BFD.State == "up" &&
		p.BFD.IntervalSeconds == bfdInterval.Seconds() && p.BFD.DetectionSeconds == (3*bfdInterval).Seconds()
}

// bfdOf is the state of the only peer.
func (p *process) bfdOf(t *testing.T) ops.BFD {
	t.Helper()
	state, err := p.client.State(t.Context(), 0)
	if err != nil || len(state.Peers) != 1 || state.Peers[0].BFD == nil {
		t.Fatalf("the speaker is %+v, %v", state, err)
	}
	return *state.Peers[0].BFD
}

// newBFDPair is a router and a speaker with a session and BFD.
func newBFDPair(t *testing.T) (*bird, *process) {
	t.Helper()
	r := newBird(t)
	p := newProcess(t, r, 1)
	r.start(t, birdBFD)
	p.apply(t, desiredWithBFD(1, vip4))
	p.peer(t, "BFD and BGP are up", isUp)
	r.expectHops(t, "with BFD", vip4, 1)
	return r, p
}

// TestBFD: a router withdraws the routes of a speaker that stands still, and takes them back; a router that stands
// still loses the session; packets of unknown hosts change nothing; a router without BFD has a session all the same.
func TestBFD(t *testing.T) {
	t.Parallel()
	t.Run("a speaker that stands still", func(t *testing.T) {
		t.Parallel()
		r, p := newBFDPair(t)
		suspendSpeaker(t, r, p)
	})
	t.Run("unknown hosts", func(t *testing.T) {
		t.Parallel()
		r, p := newBFDPair(t)
		sendFromOthers(t, r, p)
	})
	t.Run("a router that stands still", func(t *testing.T) {
		t.Parallel()
		r, p := newBFDPair(t)
		signal := routerSignals(t, r)
		signal(syscall.SIGSTOP)
		p.peer(t, "the session has fallen", func(peer ops.BGPPeer) bool {
			return peer.State != ops.BGPEstablished && peer.BFD.State == "down" &&
				strings.HasPrefix(peer.Reason, lostByBFD)
		})
		signal(syscall.SIGCONT)
		p.peer(t, "all is up again", isUp)
	})
	t.Run("a router without BFD", func(t *testing.T) {
		t.Parallel()
		r, p := newBFDPair(t)
		r.command("disable bfd1")
		p.peer(t, "the session falls", func(peer ops.BGPPeer) bool {
			return peer.State != ops.BGPEstablished && peer.BFD.State == "down" &&
				strings.HasPrefix(peer.Reason, lostByBFD)
		})
		p.peer(t, "BGP is up without BFD, and the reason is there", func(peer ops.BGPPeer) bool {
			return peer.State == ops.BGPEstablished && peer.BFD.Problem != ""
		})
		r.expectHops(t, "without BFD", vip4, 1)
	})
}

// suspendSpeaker stops a speaker's process: the router has no way until it goes on.
func suspendSpeaker(t *testing.T, r *bird, p *process) {
	before := p.bfdOf(t)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.awaitHops(t, 0, func() {
		// Whatever else stops and continues processes of tests may have continued it.
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	})
	gone := time.Since(began)
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	r.awaitHops(t, 1, func() {})
	t.Logf("3 x %v: withdrawn %v after SIGSTOP, back %v after SIGCONT", bfdInterval, gone.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond))
	p.peer(t, "all is up again", isUp)
	after := p.bfdOf(t)
	t.Logf("of %d packets, %d were late", after.Sent, after.Late)
	if after.Ups < before.Ups+1 {
		t.Errorf("BFD came up %d times, and %d times before", after.Ups, before.Ups)
	}
}

// awaitHops waits as expectHops does, but looks more often, and calls meanwhile after each look in vain.
func (r *bird) awaitHops(t *testing.T, n int, meanwhile func()) {
	t.Helper()
	ticks := time.NewTicker(2 * time.Millisecond)
	defer ticks.Stop()
	for deadline := time.Now().Add(testTimeout); r.nextHops(t, vip4) != n; <-ticks.C {
		if time.Now().After(deadline) {
			t.Fatalf("the router has %d next hops, and should have %d", r.nextHops(t, vip4), n)
		}
		meanwhile()
	}
}

// routerSignals sends signals to BIRD's process.
func routerSignals(t *testing.T, r *bird) func(syscall.Signal) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return func(s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
}

// sendFromOthers sends packets that are not the router's: from its address with another TTL, and from others.
func sendFromOthers(t *testing.T, r *bird, p *process) {
	before := p.bfdOf(t)
	router, other := netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("198.18.1.9")
	testenv.In(t, r.ns, func() error {
		link, err := netlink.LinkByName("b1")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr(other.String() + "/24")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, address)
	})
	down := bfd.Packet{State: bfd.Down, Multiplier: 3, MyDiscriminator: 99, DesiredMinTx: time.Second,
		RequiredMinRx: time.Second}
	wrong := down
	wrong.State, wrong.YourDiscriminator = bfd.AdminDown, 1
	for _, c := range []struct {
		from    netip.Addr
		ttl     int
		payload []byte
		times   int
	}{
		{router, 254, down.Append(nil), 50}, {router, 255, wrong.Append(nil), 50}, {router, 255, []byte("not BFD"), 50},
		{router, 255, nil, 50}, {other, 255, down.Append(nil), 20_000},
	} {
		testenv.In(t, r.ns, func() error { return sendTo(c.from, c.ttl, c.payload, c.times) })
	}
	var after ops.BFD
	p.peer(t, "what comes from the router's address is counted", func(peer ops.BGPPeer) bool {
		if !isUp(peer) {
			return false
		}
		after = *peer.BFD // a later reading may be that of a session which has fallen since
		return after.Refused >= before.Refused+150
	})
	// Where the machine stalled, the session has fallen, and some of the router's last packets were refused, too.
	if unexpected := after.Refused - before.Refused - 150; unexpected > 0 &&
		(after.Ups == before.Ups || unexpected > 1000) {
		t.Errorf("%d packets were refused, and 150 were to be: the kernel drops the others",
			after.Refused-before.Refused)
	}
	// A packet whose state takes the session down is an unknown host's: the router has sent none.
	if after.RemoteState != "up" && after.Ups == before.Ups {
		t.Errorf("the router's state is %q", after.RemoteState)
	}
}

// sendTo sends datagrams to the speaker's port of BFD.
func sendTo(from netip.Addr, ttl int, payload []byte, times int) error {
	dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			controlErr := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl)
			})
			if err == nil {
				err = controlErr
			}
			return err
		}}
	conn, err := dialer.Dial("udp4", "198.18.1.2:3784")
	if err != nil {
		return err
	}
	defer conn.Close()
	for range times {
		if _, err := conn.Write(payload); err != nil {
			return err
		}
	}
	return nil
}

// TestBFDByIPv6: sessions by a global and by a link-local address of the router.
func TestBFDByIPv6(t *testing.T) {
	t.Parallel()
	if os.Getenv(requireFRR) == "" {
		t.Skip("make test-bgp runs it")
	}
	r := newBird(t)
	p := newProcess(t, r, 1)
	near, far := linkLocal(t, r.ns, "b1"), linkLocal(t, p.ns, "up")
	r.start(t,
		birdProtocol+`protocol bgp b1 { local 2001:2:0:1::1 as 64513; neighbor 2001:2:0:1::2 as 64512; passive on; bfd on; hold time 240; ipv6 { import all; export none; }; }
protocol bgp b2 { local as 64513; neighbor `+far.String()+`%b1 as 64512; passive on; bfd on; hold time 240; ipv6 { import all; export none; }; }
`)
	w := desiredWithBFD(1, vip6)
	second := w.BGP.Peers[0]
	w.BGP.Peers[0].Address = netip.MustParseAddr("2001:2:0:1::1")
	second.Address, second.Interface = near, "up"
	w.BGP.Peers = append(w.BGP.Peers, second)
	p.apply(t, w)
	testenv.Eventually(t, testTimeout, "both are up", func() bool {
		state, err := p.client.State(t.Context(), 0)
		return err == nil && len(state.Peers) == 2 && isUp(state.Peers[0]) && isUp(state.Peers[1])
	})
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.expectHops(t, "without the speaker", vip6, 0)
}

// linkLocal is the link-local address of a link, once it may be used.
func linkLocal(t *testing.T, ns *namespace.Namespace, name string) (found netip.Addr) {
	t.Helper()
	testenv.Eventually(t, testTimeout, "the link-local address of "+name, func() bool {
		testenv.In(t, ns, func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			addresses, err := netdump.Consistent(func() ([]netlink.Addr, error) {
				return netlink.AddrList(link, netlink.FAMILY_V6)
			})
			for _, a := range addresses {
				if a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
					found, _ = netip.AddrFromSlice(a.IP)
				}
			}
			return err
		})
		return found.IsValid()
	})
	return found
}

// TestBFDEndsAsPlanned: a speaker that is restarted, or has BFD removed, tells the router that this is no failure, and
// one that has BIRD's "bfd graceful" keeps the routes. With "bfd on" it does not, for BIRD 2.0.12 takes AdminDown for a
// failure.
func TestBFDEndsAsPlanned(t *testing.T) {
	t.Parallel()
	if os.Getenv(requireFRR) == "" {
		t.Skip("make test-bgp runs it")
	}
	r := newBird(t)
	p := newProcess(t, r, 1)
	r.start(t, strings.Replace(birdBFD, "bfd on;", "bfd graceful;", 1))
	p.apply(t, desiredWithBFD(1, vip4))
	p.peer(t, "BFD and BGP are up", isUp)
	r.expectHops(t, "with BFD", vip4, 1)
	r.command("debug bfd1 all")
	sessions := p.sessions(t)

	without := desiredWithBFD(1, vip4)
	without.BGP.Peers[0].BFD = lb.BFD{}
	p.apply(t, without)
	testenv.Eventually(t, testTimeout, "BIRD learns that it was taken down", func() bool {
		return strings.Contains(r.output.String(), "AdminDown")
	})
	expectStaysUp(t, r, 2*time.Second)
	if again := p.sessions(t); again != sessions {
		t.Errorf("%d sessions, and after BFD was removed %d", sessions, again)
	}
	p.apply(t, desiredWithBFD(1, vip4))
	p.peer(t, "BFD and BGP are up again", isUp)

	if err := p.client.Shutdown(t.Context(), bgp.Restart); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	p.start(t, true)
	p.apply(t, desiredWithBFD(1, vip4))
	expectStaysUp(t, r, 5*time.Second)
	p.peer(t, "BFD and BGP are up after a restart", isUp)
}
