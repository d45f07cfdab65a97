// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// packetQueue is the packets that the kernel has received of a neighbour, with their times.
type packetQueue []datagram

func (q *packetQueue) read() (datagram, bool) {
	if len(*q) == 0 {
		return datagram{}, false
	}
	got := (*q)[0]
	*q = (*q)[1:]
	return got, true
}

func (q *packetQueue) markEmpty(time.Time) {}

// TestLateReader: a process that comes late to its socket judges a neighbour as it was: alive where packets have come
// all the while, with the state that the last of them has, and lost at once where none has for the detection time.
func TestLateReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, late = 50 * time.Millisecond, 2 * time.Second
		neighbour := netip.MustParseAddr("127.0.0.2")
		e := NewEngine(nil)
		r := &peerSession{peer: Peer{Address: neighbour}, session: New(Timing{interval, 3}, 1, func() float64 {
			return 0
		}, time.Now()), sender: sender{fd: -1}}
		e.sessions[neighbour] = r
		t.Cleanup(r.sender.close)
		var q packetQueue
		comes := func(state State, yours uint32, at time.Time) {
			p := Packet{State: state, Multiplier: 3, MyDiscriminator: 2, YourDiscriminator: yours,
				DesiredMinTx:  interval,
				RequiredMinRx: interval}
			q = append(q, datagram{payload: p.Append(nil), from: neighbour, ttl: maxTTL, at: at})
		}
		comesUntil := func(end time.Time) {
			for at := time.Now(); at.Before(end); at = at.Add(interval) {
				comes(Up, 1, at)
			}
		}
		expect := func(when string, state State, failures uint64) {
			t.Helper()
			time.Sleep(time.Millisecond) // packets of that moment are left for the next turn
			e.runDue(&q)
			if r.session.State() != state || r.status.Failures != failures {
				t.Errorf("%s, the session is %s after %d failures, want %s after %d", when, r.session.State(),
					r.status.Failures, state, failures)
			}
		}
		comes(Down, 0, time.Now())
		comes(Up, 1, time.Now())
		expect("at first", Up, 0)

		// Packets wait in the socket: also more than the detection time before this process looks, the last one is
		// recent.
		comesUntil(time.Now().Add(late))
		time.Sleep(late)
		expect("late, with all packets there", Up, 0)
		if r.status.Late == 0 {
			t.Error("that packets of ours left too late is not counted")
		}

		// The neighbour dies while this process is late: that is known at once, and not after another detection time.
		comesUntil(time.Now().Add(late - 4*interval))
		time.Sleep(late)
		expect("late, and the neighbour is dead", Down, 1)

		// It comes again, and takes its end down while this process is late: the last word counts, and is no loss.
		comes(Down, 0, time.Now())
		comes(Up, 1, time.Now())
		expect("when it has come again", Up, 1)
		comesUntil(time.Now().Add(late / 2))
		comes(AdminDown, 1, time.Now().Add(late/2))
		time.Sleep(late)
		expect("late, and taken down by the neighbour", Down, 1)
	})
}
