// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// endpoint is one end of a session of a test, whose packets arrive at once.
type endpoint struct {
	*Session
	packets chan Packet
	other   *endpoint
	// dropping loses the packets that come.
	dropping bool
	changes  []Change
	sent     []time.Time
	said     []Packet
	commands chan func()
}

func newEndpoint(timing Timing, discriminator uint32) *endpoint {
	return &endpoint{Session: New(timing, discriminator, rand.Float64, time.Now()), packets: make(chan Packet, 64),
		commands: make(chan func())}
}

// runPair has two ends speak until the test's end.
func runPair(t *testing.T, a, b Timing) (x, y *endpoint) {
	x, y = newEndpoint(a, 1), newEndpoint(b, 2)
	x.other, y.other = y, x
	for _, e := range []*endpoint{x, y} {
		go e.run(t.Context().Done())
	}
	return x, y
}

func (e *endpoint) run(done <-chan struct{}) {
	for {
		now := time.Now()
		wait := time.Hour
		if due := e.Due(now); !due.IsZero() {
			wait = due.Sub(now)
		}
		timer := time.NewTimer(wait)
		select {
		case <-done:
			return
		case p := <-e.packets:
			if !e.dropping {
				c, err := e.HandlePacket(p, time.Now())
				if err != nil {
					panic(err)
				}
				e.recordChange(c)
			}
		case f := <-e.commands:
			f()
		case <-timer.C:
		}
		now = time.Now()
		e.recordChange(e.CheckDetection(now))
		for _, p := range e.PacketsDue(now) {
			e.sent, e.said = append(e.sent, now), append(e.said, p)
			e.other.packets <- p
		}
	}
}

func (e *endpoint) recordChange(c Change) {
	if c.From != c.To {
		e.changes = append(e.changes, c)
	}
}

// do has an end do something between two packets.
func (e *endpoint) do(f func()) {
	done := make(chan struct{})
	e.commands <- func() { f(); close(done) }
	<-done
}

func (e *endpoint) expect(t *testing.T, when string, state State, diag Diagnostic) {
	t.Helper()
	e.do(func() {
		if e.state != state || e.diag != diag {
			t.Errorf("%s: %v, %v; want %v, %v", when, e.state, e.diag, state, diag)
		}
	})
}

var quick = Timing{50 * time.Millisecond, 3}

// TestUp: both ends come Up, agree on the slower interval of each direction by a poll sequence, and send as often as
// that says.
func TestUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		a, b      Timing
		interval  time.Duration
		detection time.Duration
		least     float64
		most      float64
	}{
		{"the same", quick, quick, 50 * time.Millisecond, 150 * time.Millisecond, 0.75, 1},
		{"a slow neighbour", quick, Timing{400 * time.Millisecond, 5}, 400 * time.Millisecond,
			2 * time.Second, 0.75, 1},
		{"slower than a start", quick, Timing{3 * time.Second, 2}, 3 * time.Second, 6 * time.Second, 0.75, 1},
		{"a multiplier of 1", Timing{50 * time.Millisecond, 1}, quick, 50 * time.Millisecond, 150 * time.Millisecond,
			0.75, 0.9},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x, y := runPair(t, c.a, c.b)
				time.Sleep(20 * time.Second)
				x.expect(t, "after a while", Up, NoDiagnostic)
				y.expect(t, "after a while", Up, NoDiagnostic)
				x.do(func() {
					if x.txInterval() != c.interval || x.DetectionTime() != c.detection || x.polling {
						t.Errorf("sends each %v, and detects within %v; polling %v", x.txInterval(),
							x.DetectionTime(), x.polling)
					}
					x.sent = nil
				})
				time.Sleep(100 * c.interval)
				x.do(func() {
					for i, at := range x.sent[1:] {
						between := float64(at.Sub(x.sent[i])) / float64(c.interval)
						if between < c.least-1e-6 || between > c.most+1e-6 {
							t.Errorf("%.3f intervals between packets", between)
						}
					}
					if len(x.sent) < 99 {
						t.Errorf("%d packets in 100 intervals", len(x.sent))
					}
				})
			})
		})
	}
}

// TestSlowStart: an end that hears nothing sends each second at most.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, y := runPair(t, quick, quick)
		x.dropping, y.dropping = true, true
		time.Sleep(100 * time.Second)
		x.do(func() {
			if len(x.sent) < 100 || len(x.sent) > 135 {
				t.Errorf("%d packets in 100 s", len(x.sent))
			}
			for _, p := range x.said {
				if p.DesiredMinTx != time.Second || p.RequiredMinRx != quick.Interval || p.YourDiscriminator != 0 ||
					p.State != Down {
					t.Errorf("sent %+v", p)
				}
			}
		})
		if len(x.changes) > 0 {
			t.Errorf("changes %v", x.changes)
		}
	})
}

// TestLost: an end that hears nothing any more is Down within the detection time, and says so to the other; both come
// Up again.
func TestLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, y := runPair(t, quick, quick)
		time.Sleep(10 * time.Second)
		x.do(func() { x.dropping = true })
		time.Sleep(151 * time.Millisecond)
		x.expect(t, "deaf", Down, DetectionExpired)
		time.Sleep(time.Millisecond)
		y.expect(t, "told by a deaf one", Down, NeighborSignaled)
		for _, e := range []*endpoint{x, y} {
			if last := e.changes[len(e.changes)-1]; last.From != Up || !last.Failed {
				t.Errorf("the last change is %+v", last)
			}
		}
		time.Sleep(time.Minute)
		x.do(func() {
			x.dropping = false
			if x.remote != 0 {
				t.Errorf("the discriminator of one that is lost is %d", x.remote)
			}
		})
		time.Sleep(10 * time.Second)
		x.expect(t, "heard again", Up, NoDiagnostic)
	})
}

// TestTakeDown: a session that an end takes down (AdminDown) is no failure to its peer, which stays Down meanwhile.
func TestTakeDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, y := runPair(t, quick, quick)
		time.Sleep(10 * time.Second)
		x.do(func() { x.recordChange(x.TakeDown(time.Now())) })
		time.Sleep(10 * time.Second)
		x.expect(t, "shut", AdminDown, AdministrativeDown)
		y.expect(t, "beside one that is shut", Down, NeighborSignaled)
		for _, e := range []*endpoint{x, y} {
			if last := e.changes[len(e.changes)-1]; last.From != Up || last.Failed {
				t.Errorf("the last change is %+v", last)
			}
		}
	})
}

// TestRetime: another timing of a session that is Up holds when the other end knows of it, and takes no session down.
func TestRetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, y := runPair(t, quick, quick)
		time.Sleep(10 * time.Second)
		for _, next := range []Timing{{time.Second, 3}, {20 * time.Millisecond, 4}, {2 * time.Second, 2}, quick} {
			x.do(func() { x.SetTiming(next, time.Now()) })
			time.Sleep(30 * time.Second)
			x.do(func() {
				if x.txInterval() != max(next.Interval, quick.Interval) || x.polling {
					t.Errorf("wanted %v: sends each %v, polling %v", next, x.txInterval(), x.polling)
				}
			})
			y.do(func() {
				if want := time.Duration(next.Multiplier) * max(next.Interval,
					quick.Interval); y.DetectionTime() != want {
					t.Errorf("wanted %v: the other detects within %v, want %v", next, y.DetectionTime(), want)
				}
			})
		}
		for _, c := range append(x.changes, y.changes...) {
			if c.From == Up {
				t.Errorf("went %+v", c)
			}
		}
	})
}

// TestTransitions is the table of RFC 5880 section 6.8.6.
func TestTransitions(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for _, c := range []struct{ is, peerConnected, becomes State }{
		{AdminDown, Down, AdminDown}, {AdminDown, Init, AdminDown}, {AdminDown, Up, AdminDown},
		{AdminDown, AdminDown, AdminDown},
		{Down, AdminDown, Down}, {Down, Down, Init}, {Down, Init, Up}, {Down, Up, Down},
		{Init, AdminDown, Down}, {Init, Down, Init}, {Init, Init, Up}, {Init, Up, Up},
		{Up, AdminDown, Down}, {Up, Down, Down}, {Up, Init, Up}, {Up, Up, Up},
	} {
		s := New(quick, 7, rand.Float64, now)
		s.state = c.is
		p := Packet{State: c.peerConnected, Multiplier: 3, MyDiscriminator: 9, YourDiscriminator: 7,
			DesiredMinTx:  time.Second,
			RequiredMinRx: time.Second}
		if change, err := s.HandlePacket(p, now); err != nil || change.From != c.is || change.To != c.becomes ||
			s.State() != c.becomes {
			t.Errorf("%s that hears %s: %+v, %v; want %s", c.is, c.peerConnected, change, err, c.becomes)
		}
	}
}

// TestUnknownSession: a packet for another session changes nothing.
func TestUnknownSession(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := New(quick, 7, rand.Float64, now)
	before := *s
	_, err := s.HandlePacket(Packet{State: Up, Poll: true, Multiplier: 3, MyDiscriminator: 9, YourDiscriminator: 8},
		now)
	s.random, before.random = nil, nil
	if !errors.Is(err, ErrUnknownSession) || s.remote != before.remote || s.state != Down || s.pollReceived ||
		!s.lastReceived.IsZero() {
		t.Errorf("%v, and the session is %+v", err, s)
	}
}

// TestPollsAreAnswered: each poll at once, several that came together by one packet; a neighbour that wants no packets
// still gets that.
func TestPollsAreAnswered(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := New(quick, 7, rand.Float64, now)
	s.PacketsDue(now)
	p := Packet{State: Init, Poll: true, Multiplier: 3, MyDiscriminator: 9, YourDiscriminator: 7,
		DesiredMinTx: time.Second}
	for range 3 {
		if _, err := s.HandlePacket(p, now); err != nil {
			t.Fatal(err)
		}
	}
	if sent := s.PacketsDue(now); len(sent) != 1 || !sent[0].Final || sent[0].Poll || sent[0].YourDiscriminator != 9 {
		t.Errorf("answered by %+v", sent)
	}
	if sent := s.PacketsDue(now.Add(time.Hour)); len(sent) != 0 {
		t.Errorf("one that wants no packets got %+v", sent)
	}
}
