// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"testing"
	"time"
)

const ms = time.Millisecond

var (
	begin    = time.Unix(1000, 0)
	settings = Settings{VRID: 51, Priority: 100, Interval: 100 * ms, Preempt: true}
)

// machineTest is a machine under test, and its clock.
type machineTest struct {
	t       *testing.T
	now     time.Time
	m       Machine
	actions Actions
}

func started(t *testing.T, s Settings) *machineTest {
	r := &machineTest{t: t, now: begin, m: Machine{Settings: s, State: Initialize}}
	r.m, r.actions = r.m.Start(r.now, "test")
	r.expect("at first", Backup, Actions{Changed: true})
	return r
}

func active(t *testing.T, s Settings) *machineTest {
	r := started(t, s)
	r.fireTimer("alone", Active, Actions{Send: true, Changed: true})
	return r
}

func (r *machineTest) expect(when string, s State, actions Actions) {
	r.t.Helper()
	if r.m.State != s || r.actions != actions {
		r.t.Fatalf("%s: %s (%s), %+v; it should be %s, %+v", when, r.m.State, r.m.Cause, r.actions, s, actions)
	}
}

// advance lets time pass.
func (r *machineTest) advance(d time.Duration) *machineTest {
	r.now = r.now.Add(d)
	return r
}

// fireTimer ticks when the timer says.
func (r *machineTest) fireTimer(when string, s State, actions Actions) {
	r.t.Helper()
	r.now = r.m.Due
	r.tick(when, s, actions)
}

func (r *machineTest) tick(when string, s State, actions Actions) {
	r.t.Helper()
	r.m, r.actions = r.m.HandleTimer(r.now)
	r.expect(when, s, actions)
}

func (r *machineTest) handleAdvert(when string, priority uint8, from netip.Addr, s State, actions Actions) {
	r.t.Helper()
	r.m, r.actions = r.m.HandleAdvert(r.now, Advertised{From: from, Own: own4, Priority: priority, Interval: 100 * ms,
		TieBreak: true})
	r.expect(when, s, actions)
}

func (r *machineTest) within(when string, d time.Duration) {
	r.t.Helper()
	if got := r.m.Due.Sub(r.now); got != d {
		r.t.Fatalf("%s: the timer is in %s, and should be in %s", when, got, d)
	}
}

const skew100 = 156 * 100 * ms / 256 // of priority 100 at 100 ms

func TestTimes(t *testing.T) {
	r := started(t, settings)
	r.within("Active_Down_Interval", 300*ms+skew100)
	r.advance(300*ms).tick("before it", Backup, Actions{})
	r.fireTimer("after it", Active, Actions{Send: true, Changed: true})
	r.within("Adver_Interval", 100*ms)
	r.fireTimer("then", Active, Actions{Send: true})
}

func TestBackup(t *testing.T) {
	r := started(t, settings)
	r.advance(250*ms).handleAdvert("a greater priority", 200, peer4, Backup, Actions{})
	r.within("the timer begins again", 300*ms+skew100)
	r.advance(50*ms).handleAdvert("the same priority", 100, peer4, Backup, Actions{})
	r.within("the timer begins again", 300*ms+skew100)
	before := r.m.Due
	r.advance(50*ms).handleAdvert("a lower one, to be preempted", 50, peer4, Backup, Actions{})
	if r.m.Due != before {
		t.Error("a lower priority put the timer off")
	}
	r.handleAdvert("the active one leaves", 0, peer4, Backup, Actions{})
	r.within("Skew_Time", skew100)
	r.fireTimer("after it", Active, Actions{Send: true, Changed: true})
}

func TestNoPreempt(t *testing.T) {
	s := settings
	s.Preempt = false
	r := started(t, s)
	for range 20 {
		r.advance(100*ms).handleAdvert("a lower priority", 50, peer4, Backup, Actions{})
		r.within("the timer begins again", 300*ms+skew100)
	}
}

func TestPreemptDelay(t *testing.T) {
	s := settings
	s.PreemptDelay = time.Second
	r := started(t, s)
	for range 11 {
		r.handleAdvert("a lower priority", 50, peer4, Backup, Actions{})
		r.advance(100 * ms)
	}
	r.fireTimer("after the delay", Active, Actions{Send: true, Changed: true})
	if since := r.now.Sub(begin); since < time.Second || since > 1400*ms {
		t.Errorf("it took over after %s", since)
	}
}

func TestLearnsTheInterval(t *testing.T) {
	r := started(t, settings)
	r.m, r.actions = r.m.HandleAdvert(r.now, Advertised{From: peer4, Priority: 200, Interval: time.Second,
		TieBreak: true})
	r.within("of the active one's interval", 3*time.Second+10*skew100)
}

func TestActive(t *testing.T) {
	small, great := netip.MustParseAddr("198.18.0.9"), peer4
	for _, test := range []struct {
		name     string
		priority uint8
		from     netip.Addr
		state    State
		do       Actions
	}{
		{"a lower priority", 99, great, Active, Actions{Send: true, Announce: true}},
		{"the same, a smaller address", 100, small, Active, Actions{Send: true, Announce: true}},
		{"the same, a greater address", 100, great, Backup, Actions{Send: true, Changed: true}},
		{"a greater priority", 101, small, Backup, Actions{Send: true, Changed: true}},
		{"one that leaves", 0, great, Active, Actions{Send: true, Announce: true}},
	} {
		r := active(t, settings)
		r.advance(50*ms).handleAdvert(test.name, test.priority, test.from, test.state, test.do)
	}
	r := active(t, settings)
	r.m, r.actions = r.m.HandleAdvert(r.now, Advertised{From: peer6, Own: own6, Priority: 100, Interval: 100 * ms})
	r.expect("a tie of the family that does not decide", Active, Actions{})
	r.m, r.actions = r.m.Stop(r.now, "test")
	r.expect("a stop", Initialize, Actions{Send: true, Resign: true, Changed: true})
	if !r.m.Due.IsZero() {
		t.Error("the timer runs in Initialize")
	}
	r = started(t, settings)
	r.m, r.actions = r.m.Stop(r.now, "test")
	r.expect("a stop in Backup", Initialize, Actions{Resign: true, Changed: true})
}

// TestLateTimer: a process that was suspended does not take its own silence for the active one's.
func TestLateTimer(t *testing.T) {
	r := started(t, settings)
	r.handleAdvert("an active one", 200, peer4, Backup, Actions{})
	r.advance(10*time.Second).tick("late", Backup, Actions{})
	r.within("a whole interval to be heard", 100*ms+skew100)
	r.handleAdvert("the active one is there", 200, peer4, Backup, Actions{})
	r.within("the timer begins again", 300*ms+skew100)
	r.advance(10*time.Second).tick("late again", Backup, Actions{})
	r.fireTimer("and silent", Active, Actions{Send: true, Changed: true})

	r = started(t, settings)
	r.handleAdvert("an active one", 200, peer4, Backup, Actions{})
	r.now = r.m.Due
	r.advance(25*ms).tick("within the slack", Active, Actions{Send: true, Changed: true})
	r = started(t, settings)
	r.handleAdvert("an active one", 200, peer4, Backup, Actions{})
	r.now = r.m.Due
	r.advance(30*ms).tick("beyond it", Backup, Actions{})
	r.within("half an interval to be heard", 50*ms)
	r.fireTimer("and silent", Active, Actions{Send: true, Changed: true})

	r = active(t, settings)
	r.advance(10*time.Second).handleAdvert("another took over meanwhile", 50, peer4, Backup, Actions{Changed: true})
	r = active(t, settings)
	r.advance(10*time.Second).tick("no other did", Active, Actions{Send: true})
}

func TestOtherSettings(t *testing.T) {
	r := active(t, settings)
	s := settings
	s.Priority, s.Interval = 50, time.Second
	r.m = r.m.SetSettings(s, r.now)
	r.fireTimer("peers get it at once", Active, Actions{Send: true})
	r.within("the new interval", time.Second)
	r.handleAdvert("one that has more now", 60, peer4, Backup, Actions{Send: true, Changed: true})
}

// TestSettingsOfBackup: a change of the priority moves the end of a backup's wait by the difference of the skews, and
// begins no new wait: the active router's last ADVERTISEMENT is as old as before.
func TestSettingsOfBackup(t *testing.T) {
	lower := settings
	lower.Priority = 80
	const skew80 = 176 * 100 * ms / 256
	r := started(t, settings)
	for range 3 {
		r.m = r.m.SetSettings(lower, r.advance(50*ms).now)
		r.m = r.m.SetSettings(settings, r.advance(50*ms).now)
	}
	if got := r.m.Due.Sub(begin); got != 300*ms+skew100 {
		t.Errorf("the wait ends after %s, and should after %s", got, 300*ms+skew100)
	}
	r.fireTimer("no ADVERTISEMENT arrived", Active, Actions{Send: true, Changed: true})

	r = started(t, settings)
	r.handleAdvert("the active router leaves", 0, peer4, Backup, Actions{})
	r.m = r.m.SetSettings(lower, r.now)
	r.within("Skew_Time of the other priority", skew80)

	r = started(t, lower)
	r.advance(300*ms + skew100 + 1*ms)
	r.m = r.m.SetSettings(settings, r.now)
	r.within("the shorter wait is over", 0)
	r.fireTimer("at once", Active, Actions{Send: true, Changed: true})

	raised := settings
	raised.Priority = 254
	r = started(t, settings)
	r.now = r.m.Due.Add(30 * ms)
	r.m = r.m.SetSettings(raised, r.now)
	r.within("a stall is no longer than it was", -30*ms)
	r.tick("late", Backup, Actions{})
}

// TestAnnounceInterval: the active balancer announces the VIPs again when it has not for that long, with the next
// advertisement, and never where that is 0.
func TestAnnounceInterval(t *testing.T) {
	s := settings
	s.AnnounceInterval = 250 * ms
	r := active(t, s)
	for range 3 {
		r.fireTimer("100 ms after", Active, Actions{Send: true})
		r.fireTimer("200 ms after", Active, Actions{Send: true})
		r.fireTimer("300 ms after", Active, Actions{Send: true, Announce: true})
	}
	r.fireTimer("100 ms after", Active, Actions{Send: true})
	r.advance(50*ms).handleAdvert("another was active", 50, peer4, Active, Actions{Send: true, Announce: true})
	r.fireTimer("100 ms after that", Active, Actions{Send: true})
	r.fireTimer("200 ms after that", Active, Actions{Send: true})
	r.fireTimer("300 ms after that", Active, Actions{Send: true, Announce: true})
	r = active(t, settings)
	for range 100 {
		r.fireTimer("without an interval", Active, Actions{Send: true})
	}
}

// TestTwoMachines: of two that receive each other's advertisements, one is active, whatever is lost before; who is
// active changes once where it must. Whichever of them receives the other first, the one that stays active announces
// the VIPs after the other has yielded.
func TestTwoMachines(t *testing.T) {
	for _, priorities := range [][2]uint8{{100, 200}, {200, 100}, {100, 100}} {
		machines, addresses := [2]Machine{}, [2]netip.Addr{own4, peer4}
		now := begin
		for i := range machines {
			s := settings
			s.Priority = priorities[i]
			machines[i] = Machine{Settings: s, State: Initialize}
			machines[i], _ = machines[i].Start(now, "")
		}
		together, announced := 0, [2]int{}
		for step := range 3000 {
			now = now.Add(ms)
			apart := step < 1000
			for i := range machines {
				var actions Actions
				machines[i], actions = machines[i].HandleTimer(now)
				for from := i; actions.Send && !apart; {
					to := 1 - from
					if actions.Announce {
						announced[from] = step
					}
					machines[to],
						actions = machines[to].HandleAdvert(now, Advertised{From: addresses[from], Own: addresses[to],
						Priority: machines[from].Priority, Interval: machines[from].Interval, TieBreak: true})
					from = to
				}
			}
			if machines[0].State == Active && machines[1].State == Active {
				together = step
			}
		}
		if together < 900 || together > 1100 {
			t.Errorf("%v: both were active at %d ms at last, and were apart for 1000 ms", priorities, together)
		}
		want := 1
		if priorities[0] > priorities[1] {
			want = 0
		}
		if announced[want] < together || announced[1-want] > 0 {
			t.Errorf("%v: the VIPs were announced again at %v ms, and both were active until %d",
				priorities, announced, together)
		}
		if machines[want].State != Active || machines[1-want].State != Backup {
			t.Errorf("%v: the states are %s and %s", priorities, machines[0].State, machines[1].State)
		}
	}
}
