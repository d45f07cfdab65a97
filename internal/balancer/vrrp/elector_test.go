// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/host/iface"
)

// segment is an interface and its sockets, in memory.
type segment struct {
	incoming chan received
	sent     chan Advert
	done     chan struct{}
	// stall is for how long a logged line keeps the elector from all else, slow for how long its interface's state is
	// read, and failing the error of that.
	stall, slow time.Duration
	failing     error
	warnings    atomic.Int32
	// changes has a value when the interface, which has had this many indices before, may have changed.
	changes chan struct{}
	numbers atomic.Int32
}

func (s *segment) States() ([]iface.State, error) {
	time.Sleep(s.slow)
	if s.failing != nil {
		return nil, s.failing
	}
	return []iface.State{{Name: "eth0", Index: 2 + int(s.numbers.Load()), Up: true,
		Addresses: []netip.Prefix{netip.PrefixFrom(own4, 24)}}}, nil
}

// slowLog is a log that stalls who writes it, and counts warnings.
type slowLog struct {
	slog.Handler
	segment *segment
}

func (l slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (l slowLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		l.segment.warnings.Add(1)
	}
	time.Sleep(l.segment.stall)
	return nil
}

func (s *segment) Changes() <-chan struct{} { return s.changes }
func (s *segment) Close()                   {}

func (s *segment) send(a Advert) error { s.sent <- a; return nil }
func (s *segment) receive() (received, error) {
	select {
	case r := <-s.incoming:
		return r, nil
	case <-s.done:
		return received{}, errors.New("closed")
	}
}
func (s *segment) receivePending() (received, bool) { return received{}, false }
func (s *segment) close() error {
	select {
	case <-s.done: // one that was opened again
	default:
		close(s.done)
	}
	return nil
}

// advertise is a packet of the peer's.
func (s *segment) advertise(priority uint8) { s.advertiseFor(peer4, priority, vip4) }

// advertiseFor is a packet of any sender's, for any VIPs.
func (s *segment) advertiseFor(src netip.Addr, priority uint8, vips ...netip.Addr) {
	a := Advert{VRID: 51, Priority: priority, Interval: 100 * ms, Addresses: vips}
	s.incoming <- received{a.Marshal(src, group4), src, group4, 255}
	synctest.Wait()
}

func startElector(t *testing.T, first Desired) (e *Elector, s *segment, end func()) {
	return startKeepingVIPs(t, first, false)
}

// startKeepingVIPs starts one where the previous process has left the VIPs, or has not.
func startKeepingVIPs(t *testing.T, first Desired, keeps bool) (e *Elector, s *segment, end func()) {
	s = &segment{incoming: make(chan received), sent: make(chan Advert, 1000), done: make(chan struct{}),
		changes: make(chan struct{})}
	e = New(Options{Log: slog.New(slowLog{slog.DiscardHandler, s}), Watch: func(string) (Links, error) {
		return s, nil
	}, KeepVIPs: keeps,
		open: func(string, int, netip.Addr) (packetConn, error) { return s, nil }}, first)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx)
	}()
	synctest.Wait()
	return e, s, func() { cancel(); <-ended }
}

func (e *Elector) expect(t *testing.T, when string, holds bool, state State) {
	t.Helper()
	synctest.Wait()
	if is, _ := e.Holds(); is != holds || e.Status().State != state {
		t.Errorf("%s: it holds the VIPs: %v, as %s (%s); it should: %v, as %s", when, is, e.Status().State,
			e.Status().Cause, holds, state)
	}
}

var shared = Desired{Settings: settings, Interface: "eth0", VIPs: []netip.Addr{vip4}}

// TestInterfaceMadeAnew: sockets of an interface that has another number than before are opened again, though its name
// and its addresses are the same.
func TestInterfaceMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, closed []int
		s := &segment{incoming: make(chan received), sent: make(chan Advert, 1000), done: make(chan struct{}),
			changes: make(chan struct{})}
		e := New(Options{Log: slog.New(slog.DiscardHandler), Watch: func(string) (Links, error) { return s, nil },
			open: func(_ string, index int, _ netip.Addr) (packetConn, error) {
				opened = append(opened, index)
				return &numberedSocket{segment: s, closed: func() { closed = append(closed, index) },
					done: make(chan struct{})}, nil
			}}, shared)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.Run(ctx)
		}()
		for range 2 {
			s.changes <- struct{}{} // the same interface
			synctest.Wait()
		}
		s.numbers.Add(5)
		s.changes <- struct{}{}
		synctest.Wait()
		if !slices.Equal(opened, []int{2, 7}) || !slices.Equal(closed, []int{2}) {
			t.Errorf("sockets were opened on the interfaces of the numbers %d, and closed on %d", opened, closed)
		}
		time.Sleep(time.Second)
		e.expect(t, "with an interface made anew", true, Active)
		cancel()
		<-ended
	})
}

// TestInterfaceUnreadable: an active balancer whose interface cannot be read for some time goes on by what it read
// last; one that has never read it takes no part.
func TestInterfaceUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, end := startElector(t, shared)
		defer end()
		time.Sleep(400 * ms)
		e.expect(t, "at first", true, Active)
		s.failing = errors.New("no buffer space available")
		s.changes <- struct{}{}
		time.Sleep(3 * time.Second)
		e.expect(t, "while its interface cannot be read", true, Active)
		if st := e.Status(); !strings.Contains(st.Problem, "no buffer space available") || st.Changes != 2 {
			t.Errorf("while its interface cannot be read: %+v", st)
		}
		s.failing = nil
		time.Sleep(2 * time.Second)
		if st := e.Status(); st.Problem != "" {
			t.Errorf("its interface can be read again: %+v", st)
		}
		s.failing = iface.ErrGone
		s.changes <- struct{}{}
		e.expect(t, "its interface was deleted", false, Initialize)
		s.failing = errors.New("no buffer space available")
		time.Sleep(3 * time.Second)
		e.expect(t, "another one cannot be read", false, Initialize)
	})
}

// TestSlowReading: while its interface is read, an active balancer advertises, and is drained.
func TestSlowReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, end := startElector(t, shared)
		defer end()
		time.Sleep(400 * ms)
		e.expect(t, "at first", true, Active)
		for len(s.sent) > 0 {
			<-s.sent
		}
		s.slow = 5 * time.Second
		s.changes <- struct{}{}
		time.Sleep(time.Second + ms)
		if len(s.sent) < 10 {
			t.Errorf("while its interface was read, it advertised %d times within a second", len(s.sent))
		}
		drained := shared
		drained.Out = "the balancer is drained"
		e.SetDesired(drained)
		time.Sleep(300 * ms)
		e.expect(t, "drained meanwhile", false, Initialize)
		time.Sleep(2 * s.slow) // until it is read, and again for the drain
	})
}

// numberedSocket is a socket of an interface on the segment.
type numberedSocket struct {
	*segment
	closed func()
	done   chan struct{}
}

func (n *numberedSocket) receive() (received, error) {
	<-n.done
	return received{}, errors.New("closed")
}

func (n *numberedSocket) close() error {
	n.closed()
	close(n.done)
	return nil
}

// TestElector: a balancer that is to take part holds nothing before it is active, gives the VIPs up in order, and
// reports when two are active.
func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := shared
		starts.Out = "the balancer starts"
		e, s, end := startElector(t, starts)
		time.Sleep(time.Second)
		e.expect(t, "before the data plane is ready", false, Initialize)
		e.SetDesired(shared)
		e.expect(t, "at first", false, Backup)
		time.Sleep(400 * ms)
		e.expect(t, "alone", true, Active)
		time.Sleep(200 * ms)
		s.advertise(50)
		e.expect(t, "another is active", true, Active)
		if st := e.Status(); !st.BothActive || st.Conflicts != 1 || st.Peer != peer4 {
			t.Errorf("two are active: %+v", st)
		}
		time.Sleep(400 * ms)
		e.expect(t, "it is no more", true, Active)
		if e.Status().BothActive {
			t.Error("two are active still")
		}
		drained := shared
		drained.Out = "the balancer is drained"
		e.SetDesired(drained)
		e.expect(t, "drained, and no other one has the VIPs yet", true, Active)
		time.Sleep(300 * ms)
		e.expect(t, "drained, and there is no other one", false, Initialize)
		e.SetDesired(shared)
		time.Sleep(400 * ms)
		e.expect(t, "undrained", true, Active)
		e.SetDesired(drained)
		s.advertise(0)
		e.expect(t, "drained again, and another one leaves, too", true, Active)
		s.advertise(50)
		e.expect(t, "drained again, and another one has the VIPs", false, Initialize)
		e.SetDesired(shared)
		time.Sleep(800 * ms)
		e.expect(t, "undrained again", true, Active)
		begin := time.Now()
		end()
		var last Advert
		for len(s.sent) > 0 {
			last = <-s.sent
		}
		if last.Priority != 0 || time.Since(begin) == 0 {
			t.Errorf("the last packet is %+v, and the end took %s", last, time.Since(begin))
		}
		if holds, _ := e.Holds(); holds {
			t.Error("it holds the VIPs after the end")
		}
	})
}

// expectAnnouncements fails unless the VIPs were announced again so many times.
func (e *Elector) expectAnnouncements(t *testing.T, when string, want uint64) {
	t.Helper()
	synctest.Wait()
	if got := e.Announcements(); got != want {
		t.Errorf("%s: the VIPs were announced again %d times, and should have been %d times", when, got, want)
	}
}

// TestAnnouncedAgain: the active balancer has its VIPs announced again for each advertisement of another active one,
// and now and then; a backup has not, and a balancer that yields advertises once more, so that the other one learns of
// it.
func TestAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desired := shared
		desired.AnnounceInterval = 10 * time.Second
		e, s, end := startElector(t, desired)
		defer end()
		time.Sleep(400 * ms)
		e.expect(t, "alone", true, Active)
		e.expectAnnouncements(t, "alone", 0)
		s.advertise(50)
		s.advertise(50)
		e.expectAnnouncements(t, "another was active", 2)
		time.Sleep(11 * time.Second)
		e.expectAnnouncements(t, "after the interval", 3)
		for len(s.sent) > 0 {
			<-s.sent
		}
		s.advertise(200)
		e.expect(t, "another has more priority", false, Backup)
		if len(s.sent) != 1 {
			t.Fatalf("it yielded with %d advertisements", len(s.sent))
		}
		if last := <-s.sent; last.Priority != settings.Priority {
			t.Errorf("it yielded with %+v", last)
		}
		for range 200 {
			time.Sleep(100 * ms)
			s.advertise(200)
		}
		e.expectAnnouncements(t, "as the backup", 3)
	})
}

// TestForeignVirtualRouter: advertisements of the own id without an own VIP are ignored, whatever they say, and named
// for as long as they come; those with some of the own VIPs count.
func TestForeignVirtualRouter(t *testing.T) {
	foreign, vip := netip.MustParseAddr("198.18.0.77"), netip.MustParseAddr("198.18.0.177")
	vip2 := netip.MustParseAddr("198.18.0.178")
	synctest.Test(t, func(t *testing.T) {
		desired := shared
		desired.VIPs = []netip.Addr{vip4, vip2}
		e, s, end := startElector(t, desired)
		defer end()
		for range 10 {
			time.Sleep(100 * ms)
			s.advertiseFor(foreign, 250, vip)
		}
		e.expect(t, "beside a foreign one", true, Active)
		e.expectAnnouncements(t, "beside a foreign one", 0)
		st := e.Status()
		if st.Ignored != 10 || st.Received+st.Conflicts != 0 || st.BothActive || st.Peer.IsValid() || st.Problem != "" {
			t.Errorf("beside a foreign one: %+v", st)
		}
		is := OtherRouter{Address: foreign, VIPs: []netip.Addr{vip}, Priority: 250, Heard: time.Now()}
		if f := st.OtherRouters; len(f) != 1 || !reflect.DeepEqual(f[0], is) {
			t.Errorf("the foreign one is named %+v", f)
		}
		drained := desired
		drained.Out = "the balancer is drained"
		e.SetDesired(drained)
		s.advertiseFor(foreign, 250, vip)
		e.expect(t, "drained, and only a foreign one advertises", true, Active)
		s.advertise(50)
		e.expect(t, "drained, and another one has the VIPs", false, Initialize)
		e.SetDesired(desired)
		e.expect(t, "a backup", false, Backup)
		s.advertiseFor(foreign, 0, vip)
		s.advertiseFor(peer4, 200, vip4)
		if st := e.Status(); st.Peer != peer4 || !strings.Contains(st.Problem, "announces other addresses") {
			t.Errorf("some VIPs in common: %+v", st)
		}
		s.advertiseFor(peer4, 200, vip4, vip2)
		if st := e.Status(); st.Problem != "" || len(st.OtherRouters) != 1 {
			t.Errorf("all VIPs in common: %+v", st)
		}
		time.Sleep(10 * time.Second)
		if st := e.Status(); len(st.OtherRouters) != 0 || st.State != Active {
			t.Errorf("long after: %+v", st)
		}
	})
}

// TestForeignFlood: invented senders are no more than are remembered.
func TestForeignFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, end := startElector(t, shared)
		defer end()
		for i := range 100 {
			s.advertiseFor(netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), 250, netip.MustParseAddr("198.18.0.177"))
		}
		if st := e.Status(); len(st.OtherRouters) != maxSenders || st.Ignored != 100 {
			t.Errorf("%d are named, and %d packets were ignored", len(st.OtherRouters), st.Ignored)
		}
	})
}

// TestRejectedPackets: invalid packets are counted, and logged once per sender and fault and while, of few senders;
// those of other virtual routers are none of this one's, whatever their version is.
func TestRejectedPackets(t *testing.T) {
	version2 := func(s *segment, from byte, vrid uint8) {
		a := Advert{VRID: vrid, Priority: 100, Interval: 100 * ms, Addresses: []netip.Addr{vip4}}
		src := netip.AddrFrom4([4]byte{198, 18, from, 77})
		packet := a.Marshal(src, group4)
		packet[0] = 2<<4 | 1
		s.incoming <- received{packet, src, group4, 255}
		synctest.Wait()
	}
	for name, test := range map[string]struct {
		senders, packets, vrid, warnings int
		rejected                         uint64
	}{
		"of two senders":         {2, 100, 51, 2, 100},
		"of very many senders":   {200, 200, 51, maxSenders, 200},
		"of two virtual routers": {2, 100, 7, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s, end := startElector(t, shared)
				defer end()
				for i := range test.packets {
					version2(s, byte(i%test.senders), uint8(test.vrid))
				}
				if st := e.Status(); st.Rejected != test.rejected || int(s.warnings.Load()) != test.warnings {
					t.Errorf("%d packets were rejected, with %d warnings, expected %d and %d", st.Rejected, s.warnings.Load(),
						test.rejected, test.warnings)
				}
				for began := time.Now(); time.Since(began) < rejectionPause; time.Sleep(time.Minute) {
					for len(s.sent) > 0 {
						<-s.sent
					}
				}
				for i := range test.packets {
					version2(s, byte(i%test.senders), uint8(test.vrid))
				}
				if got := int(s.warnings.Load()); got != 2*test.warnings {
					t.Errorf("long after, there were %d warnings, expected %d", got, 2*test.warnings)
				}
			})
		})
	}
}

// TestElectionBegins: a balancer that holds the VIPs keeps them when an election begins, until another one advertises.
func TestElectionBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, end := startElector(t, Desired{})
		defer end()
		e.expect(t, "without an election", true, Initialize)
		e.SetDesired(shared)
		e.expect(t, "an election", true, Backup)
		s.advertise(200)
		e.expect(t, "another one advertises", false, Backup)
		e.SetDesired(Desired{})
		e.expect(t, "no election any more", true, Initialize)
	})
}

// TestVIPsLeft: VIPs that a killed process has left are held, and nothing is announced, until another balancer is
// heard, this one is active, or it is to take no part.
func TestVIPsLeft(t *testing.T) {
	starts, drained := shared, shared
	starts.Out, drained.Out = "the balancer starts", "the balancer is drained"
	for _, test := range []struct {
		what  string
		then  func(*Elector, *segment)
		holds bool
		state State
	}{
		{"another advertises", func(_ *Elector, s *segment) { s.advertise(200) }, false, Backup},
		{"silence", func(*Elector, *segment) { time.Sleep(400 * ms) }, true, Active},
		{"a drain", func(e *Elector, _ *segment) { e.SetDesired(drained) }, false, Initialize},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, s, end := startKeepingVIPs(t, starts, true)
			defer end()
			e.expect(t, "at first", true, Initialize)
			e.SetDesired(shared)
			e.expect(t, "taking part", true, Backup)
			if !e.HoldingUndecided() || len(s.sent) > 0 {
				t.Errorf("%s: the VIPs are kept: %v, and %d packets were sent", test.what, e.HoldingUndecided(), len(s.sent))
			}
			test.then(e, s)
			e.expect(t, test.what, test.holds, test.state)
			if e.HoldingUndecided() {
				t.Errorf("%s: the VIPs are kept still", test.what)
			}
		})
	}
}

// TestLateTimerIsNoSilence: an elector that was kept from running, as the active one may have been at the same time,
// does not take over before that one has had the time to be heard; when nothing comes, it does.
func TestLateTimerIsNoSilence(t *testing.T) {
	down := 300*ms + skew100
	for stalled, slack := range map[time.Duration]time.Duration{
		down - 20*ms:  50 * ms, // over the check before the timer
		down + 30*ms:  50 * ms, // over the timer
		down + 90*ms:  50 * ms,
		down + 300*ms: 100*ms + skew100,
	} {
		for _, comes := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				e, s, end := startElector(t, shared)
				defer end()
				time.Sleep(10 * ms)
				s.advertise(200)
				s.stall = stalled
				s.incoming <- received{nil, peer4, group4, 255} // an invalid packet, which is logged
				time.Sleep(stalled + slack - ms)
				s.stall = 0
				e.expect(t, "late by "+stalled.String(), false, Backup)
				if comes {
					s.advertise(200)
					time.Sleep(down - ms)
					e.expect(t, "the active one has come", false, Backup)
					return
				}
				time.Sleep(2 * ms)
				e.expect(t, "none has come", true, Active)
			})
		}
	}
}
