// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"fmt"
	"time"
)

// slowest is how often a session sends at most that is not Up (RFC 5880 section 6.8.3).
const slowest = time.Second

// Timing has the intervals that a session asks for.
type Timing struct {
	// Interval is how often packets are sent and taken, once the session is Up.
	Interval time.Duration
	// Multiplier is how many of them may be missing.
	Multiplier uint8
}

// Session is one end of a session: a function of the packets that come, and of time. It has no clock and no socket, and
// is not for use by several goroutines. Times are of one clock that is never set.
type Session struct {
	timing Timing
	// random is a number from 0 up to 1, for the jitter.
	random func() float64

	state, remoteState State
	local, remote      uint32
	diag, remoteDiag   Diagnostic
	remoteMultiplier   uint8
	remoteDemand       bool
	remoteIndependent  bool
	remoteMinTx        time.Duration
	remoteMinRx        time.Duration

	// desiredTx and requiredRx are the intervals in packets; sentTx and heardRx those in use until a poll sequence has
	// ended.
	desiredTx, requiredRx time.Duration
	sentTx, heardRx       time.Duration
	polling               bool

	// heard is when the last packet came; zero: none has for a detection time.
	heard time.Time
	// next is when the next packet is due.
	next time.Time
	// answer: a packet with Poll has come.
	answer bool
	// now: a packet is due whose content differs from the last one's.
	now bool
}

// Change is a change of a session's state.
type Change struct {
	From, To State
	// Failed: the neighbour was lost. It was not where the neighbour's administrator took its session down (RFC 5882
	// section 3.2).
	Failed bool
}

// New returns a session that is down, and that sends at once. The discriminator is not 0, and another one for each
// session.
func New(timing Timing, discriminator uint32, random func() float64, now time.Time) *Session {
	return &Session{timing: timing, random: random, state: Down, remoteState: Down, local: discriminator,
		remoteMinRx: time.Microsecond, desiredTx: max(timing.Interval, slowest), sentTx: max(timing.Interval, slowest),
		requiredRx: timing.Interval, heardRx: timing.Interval, next: now}
}

// State is the session's own.
func (s *Session) State() State { return s.state }

// Retime has the session want another timing. While it is Up, a longer interval holds when the neighbour knows of it
// (RFC 5880 section 6.8.3).
func (s *Session) Retime(timing Timing, now time.Time) {
	s.timing = timing
	s.requiredRx = timing.Interval
	s.want(now)
	if s.state == Up {
		s.polling = true
		s.heardRx = max(s.heardRx, s.requiredRx)
	} else {
		s.heardRx = s.requiredRx
	}
	s.now = true
}

// want sets how often the session sends, as its state permits.
func (s *Session) want(now time.Time) {
	wanted := s.timing.Interval
	if s.state != Up {
		wanted = max(wanted, slowest)
	}
	if wanted == s.desiredTx {
		return
	}
	s.desiredTx = wanted
	if s.state == Up {
		s.polling = true
		s.sentTx = min(s.sentTx, wanted)
	} else {
		s.polling, s.sentTx, s.heardRx = false, wanted, s.requiredRx
	}
	s.plan(now)
}

// Receive takes up a packet that came at a time (RFC 5880 section 6.8.6). The error says why it is not taken.
func (s *Session) Receive(p Packet, at time.Time) (Change, error) {
	if p.Yours != 0 && p.Yours != s.local {
		return Change{s.state, s.state, false}, fmt.Errorf("a packet for %#x %w", p.Yours, ErrStranger)
	}
	s.remote, s.remoteState, s.remoteDiag = p.Mine, p.State, p.Diagnostic
	s.remoteDemand, s.remoteIndependent = p.Demand, p.ControlPlaneIndependent
	s.remoteMultiplier, s.remoteMinTx = p.Multiplier, p.DesiredMinTx
	before := s.interval()
	s.remoteMinRx = p.RequiredMinRx
	if p.Final && s.polling {
		s.polling, s.sentTx, s.heardRx = false, s.desiredTx, s.requiredRx
	}
	if at.After(s.heard) {
		s.heard = at
	}
	if s.interval() < before { // or the neighbour waits for a packet that was planned later
		s.plan(at)
	}
	if s.state == AdminDown {
		return Change{s.state, s.state, false}, nil
	}
	s.answer = s.answer || p.Poll
	return s.follow(p.State, at), nil
}

// follow is the state machine of RFC 5880 section 6.2.
func (s *Session) follow(remote State, at time.Time) Change {
	switch {
	case remote == AdminDown && s.state != Down:
		return s.enter(Down, NeighborSignaled, at)
	case remote == Down && s.state == Down:
		return s.enter(Init, s.diag, at)
	case remote == Init && s.state != Up && s.state != AdminDown, remote == Up && s.state == Init:
		return s.enter(Up, NoDiagnostic, at)
	case remote == Down && s.state == Up:
		return s.enter(Down, NeighborSignaled, at)
	}
	return Change{s.state, s.state, false}
}

func (s *Session) enter(state State, diag Diagnostic, at time.Time) Change {
	c := Change{From: s.state, To: state, Failed: s.state == Up && state == Down && s.remoteState != AdminDown}
	s.state, s.diag, s.now = state, diag, true
	s.want(at)
	return c
}

// interval is how often packets are sent; 0: none is.
func (s *Session) interval() time.Duration {
	if s.remoteMinRx == 0 || s.remoteDemand && s.state == Up && s.remoteState == Up && !s.polling {
		return 0
	}
	return max(s.sentTx, s.remoteMinRx)
}

// Detection is the time of silence after which the neighbour is lost (RFC 5880 section 6.8.4); 0 before it was heard.
func (s *Session) Detection() time.Duration {
	return time.Duration(s.remoteMultiplier) * max(s.heardRx, s.remoteMinTx)
}

// plan sets when the next packet is due: the interval less 0 to 25 %, or with a multiplier of 1 less 10 to 25 %, so
// that the next one comes in time (RFC 5880 section 6.8.7).
func (s *Session) plan(from time.Time) {
	least, spread := 0.75, 0.25
	if s.timing.Multiplier == 1 {
		spread = 0.15
	}
	s.next = from.Add(time.Duration(float64(s.interval()) * (least + spread*s.random())))
}

// Due is when Send or Expire have something to do next, now where they have already; zero: when a packet comes.
func (s *Session) Due(now time.Time) time.Time {
	if s.answer || s.now {
		return now
	}
	var due time.Time
	if s.interval() > 0 {
		due = s.next
	}
	if d := s.Detection(); !s.heard.IsZero() && d > 0 {
		if lost := s.heard.Add(d); due.IsZero() || lost.Before(due) {
			due = lost
		}
	}
	return due
}

// Expire takes up that nothing more has come up to now. Call it when all packets that had come by then were given to
// Receive.
func (s *Session) Expire(now time.Time) Change {
	if s.heard.IsZero() || now.Before(s.heard.Add(s.Detection())) {
		return Change{s.state, s.state, false}
	}
	// Who comes next may be another, who wants other things.
	s.heard, s.remote, s.remoteDemand, s.remoteMinRx = time.Time{}, 0, false, time.Microsecond
	if s.state != Init && s.state != Up {
		return Change{s.state, s.state, false}
	}
	s.remoteState = Down
	return s.enter(Down, DetectionExpired, now)
}

// Send returns the packets that are due, and plans the next one.
func (s *Session) Send(now time.Time) (due []Packet) {
	if s.answer {
		s.answer = false
		final := s.packet()
		final.Poll, final.Final = false, true
		due = append(due, final)
	}
	periodic := s.interval() > 0 && !now.Before(s.next)
	if periodic || s.now && s.remoteMinRx > 0 {
		due = append(due, s.packet())
		s.plan(now)
	}
	s.now = false
	return due
}

// packet is the session's next packet.
func (s *Session) packet() Packet {
	return Packet{Diagnostic: s.diag, State: s.state, Poll: s.polling, Multiplier: s.timing.Multiplier, Mine: s.local,
		Yours:        s.remote,
		DesiredMinTx: s.desiredTx, RequiredMinRx: s.requiredRx}
}

// Shut takes the session down, which the neighbour must not take for a failure (RFC 5882 section 3.2): it is told by
// the next packets.
func (s *Session) Shut(now time.Time) Change { return s.enter(AdminDown, AdministrativeDown, now) }
