// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"fmt"
	"time"
)

// slowInterval is the shortest interval of a session that is not Up (RFC 5880 section 6.8.3).
const slowInterval = time.Second

// Timing has the intervals that a session asks for.
type Timing struct {
	// Interval is how often packets are sent and taken, once the session is Up.
	Interval time.Duration
	// Multiplier is how many of them may be missing.
	Multiplier uint8
}

// Session is one end of a session: a function of the packets that come, and of time. It has no clock and no socket, and
// is not for use by several goroutines. Times are of one monotonic clock.
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

	// desiredTx and requiredRx are the intervals in packets; activeTx and activeRx those in use until a poll sequence
	// has ended.
	desiredTx, requiredRx time.Duration
	activeTx, activeRx    time.Duration
	polling               bool

	// lastReceived is when the last packet came; zero: none has for a detection time.
	lastReceived time.Time
	// nextSend is when the next packet is due.
	nextSend time.Time
	// pollReceived: a packet with Poll has come.
	pollReceived bool
	// sendNow: a packet is due whose content differs from the last one's.
	sendNow bool
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
		remoteMinRx: time.Microsecond, desiredTx: max(timing.Interval, slowInterval), activeTx: max(timing.Interval,
			slowInterval),
		requiredRx: timing.Interval, activeRx: timing.Interval, nextSend: now}
}

// State is the session's own.
func (s *Session) State() State { return s.state }

// SetTiming changes the intervals that the session asks for. While it is Up, a longer interval holds when the
// neighbour knows of it (RFC 5880 section 6.8.3).
func (s *Session) SetTiming(timing Timing, now time.Time) {
	s.timing = timing
	s.requiredRx = timing.Interval
	s.setIntervals(now)
	if s.state == Up {
		s.polling = true
		s.activeRx = max(s.activeRx, s.requiredRx)
	} else {
		s.activeRx = s.requiredRx
	}
	s.sendNow = true
}

// setIntervals sets how often the session sends, as its state permits.
func (s *Session) setIntervals(now time.Time) {
	wanted := s.timing.Interval
	if s.state != Up {
		wanted = max(wanted, slowInterval)
	}
	if wanted == s.desiredTx {
		return
	}
	s.desiredTx = wanted
	if s.state == Up {
		s.polling = true
		s.activeTx = min(s.activeTx, wanted)
	} else {
		s.polling, s.activeTx, s.activeRx = false, wanted, s.requiredRx
	}
	s.scheduleSend(now)
}

// HandlePacket handles a packet that came at a time (RFC 5880 section 6.8.6). The error says why it is not taken.
func (s *Session) HandlePacket(p Packet, at time.Time) (Change, error) {
	if p.YourDiscriminator != 0 && p.YourDiscriminator != s.local {
		return Change{s.state, s.state, false}, fmt.Errorf("a packet for %#x %w", p.YourDiscriminator,
			ErrUnknownSession)
	}
	s.remote, s.remoteState, s.remoteDiag = p.MyDiscriminator, p.State, p.Diagnostic
	s.remoteDemand, s.remoteIndependent = p.Demand, p.ControlPlaneIndependent
	s.remoteMultiplier, s.remoteMinTx = p.Multiplier, p.DesiredMinTx
	before := s.txInterval()
	s.remoteMinRx = p.RequiredMinRx
	if p.Final && s.polling {
		s.polling, s.activeTx, s.activeRx = false, s.desiredTx, s.requiredRx
	}
	if at.After(s.lastReceived) {
		s.lastReceived = at
	}
	if s.txInterval() < before { // or the neighbour waits for a packet that was planned later
		s.scheduleSend(at)
	}
	if s.state == AdminDown {
		return Change{s.state, s.state, false}, nil
	}
	s.pollReceived = s.pollReceived || p.Poll
	return s.updateState(p.State, at), nil
}

// updateState is the state machine of RFC 5880 section 6.2.
func (s *Session) updateState(remote State, at time.Time) Change {
	switch {
	case remote == AdminDown && s.state != Down:
		return s.setState(Down, NeighborSignaled, at)
	case remote == Down && s.state == Down:
		return s.setState(Init, s.diag, at)
	case remote == Init && s.state != Up && s.state != AdminDown, remote == Up && s.state == Init:
		return s.setState(Up, NoDiagnostic, at)
	case remote == Down && s.state == Up:
		return s.setState(Down, NeighborSignaled, at)
	}
	return Change{s.state, s.state, false}
}

func (s *Session) setState(state State, diag Diagnostic, at time.Time) Change {
	c := Change{From: s.state, To: state, Failed: s.state == Up && state == Down && s.remoteState != AdminDown}
	s.state, s.diag, s.sendNow = state, diag, true
	s.setIntervals(at)
	return c
}

// txInterval is how often packets are sent; 0: none is.
func (s *Session) txInterval() time.Duration {
	if s.remoteMinRx == 0 || s.remoteDemand && s.state == Up && s.remoteState == Up && !s.polling {
		return 0
	}
	return max(s.activeTx, s.remoteMinRx)
}

// DetectionTime is the time without packets after which the neighbour is lost (RFC 5880 section 6.8.4); 0 before its
// first packet.
func (s *Session) DetectionTime() time.Duration {
	return time.Duration(s.remoteMultiplier) * max(s.activeRx, s.remoteMinTx)
}

// scheduleSend sets when the next packet is due: the interval less 0 to 25 %, or with a multiplier of 1 less 10 to
// 25 %, so that the next one comes in time (RFC 5880 section 6.8.7).
func (s *Session) scheduleSend(from time.Time) {
	least, spread := 0.75, 0.25
	if s.timing.Multiplier == 1 {
		spread = 0.15
	}
	s.nextSend = from.Add(time.Duration(float64(s.txInterval()) * (least + spread*s.random())))
}

// Due returns when PacketsDue or CheckDetection is to be called next, now if that is overdue; zero: after a packet.
func (s *Session) Due(now time.Time) time.Time {
	if s.pollReceived || s.sendNow {
		return now
	}
	var due time.Time
	if s.txInterval() > 0 {
		due = s.nextSend
	}
	if d := s.DetectionTime(); !s.lastReceived.IsZero() && d > 0 {
		if lost := s.lastReceived.Add(d); due.IsZero() || lost.Before(due) {
			due = lost
		}
	}
	return due
}

// CheckDetection takes the session down where nothing has come for the detection time. Call it when all packets
// that had come by then were given to HandlePacket.
func (s *Session) CheckDetection(now time.Time) Change {
	if s.lastReceived.IsZero() || now.Before(s.lastReceived.Add(s.DetectionTime())) {
		return Change{s.state, s.state, false}
	}
	// The next packet may come from a restarted neighbour, with other intervals.
	s.lastReceived, s.remote, s.remoteDemand, s.remoteMinRx = time.Time{}, 0, false, time.Microsecond
	if s.state != Init && s.state != Up {
		return Change{s.state, s.state, false}
	}
	s.remoteState = Down
	return s.setState(Down, DetectionExpired, now)
}

// PacketsDue returns the packets that are due, and schedules the next one.
func (s *Session) PacketsDue(now time.Time) (due []Packet) {
	if s.pollReceived {
		s.pollReceived = false
		final := s.nextPacket()
		final.Poll, final.Final = false, true
		due = append(due, final)
	}
	periodic := s.txInterval() > 0 && !now.Before(s.nextSend)
	if periodic || s.sendNow && s.remoteMinRx > 0 {
		due = append(due, s.nextPacket())
		s.scheduleSend(now)
	}
	s.sendNow = false
	return due
}

// nextPacket is the session's next packet.
func (s *Session) nextPacket() Packet {
	return Packet{Diagnostic: s.diag, State: s.state, Poll: s.polling, Multiplier: s.timing.Multiplier,
		MyDiscriminator:   s.local,
		YourDiscriminator: s.remote,
		DesiredMinTx:      s.desiredTx, RequiredMinRx: s.requiredRx}
}

// TakeDown takes the session down administratively (RFC 5882 section 3.2): the next packets say AdminDown, so that the
// neighbour does not take it for a failure.
func (s *Session) TakeDown(now time.Time) Change {
	return s.setState(AdminDown, AdministrativeDown, now)
}
