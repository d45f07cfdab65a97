// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"fmt"
	"net/netip"
	"time"
)

// State is the state of a virtual router (RFC 9568 section 6.4).
type State string

// The states. Initialize takes no part; Active holds the addresses.
const (
	Initialize State = "initialize"
	Backup     State = "backup"
	Active     State = "active"
)

// Settings are how a balancer takes part.
type Settings struct {
	// VRID tells virtual routers of a segment apart, 1 to 255.
	VRID uint8
	// Priority decides who is active, 1 to 254: no balancer owns the addresses.
	Priority uint8
	// Interval is how often the active one is heard: whole hundredths of a second.
	Interval time.Duration
	// Preempt has a balancer take over from an active one of a lower priority, PreemptDelay after it was
	// heard first.
	Preempt      bool
	PreemptDelay time.Duration
	// AnnounceInterval is how often the active balancer announces the VIPs to the neighbours again, with nothing else
	// to make it do so; 0: never. It is rounded up to the next advertisement.
	AnnounceInterval time.Duration
}

// Heard is an ADVERTISEMENT of another balancer.
type Heard struct {
	From     netip.Addr
	Priority uint8
	Interval time.Duration
	// Ties says that equal priorities are decided by the addresses of this family, where a group has
	// two: two families could decide otherwise. Own is the address that this host sends from.
	Ties bool
	Own  netip.Addr
}

// Machine is one virtual router (section 6.4): the VIPs of both families are one group, which is active as one. Its
// methods return the next machine and the steps to take; they read no clock and have no effects.
type Machine struct {
	Settings
	State State
	// Since is when the state began.
	Since time.Time
	// Due is when Tick is to be called; zero: never.
	Due time.Time
	// interval is Active_Adver_Interval, as the active one says it.
	interval time.Duration
	// sent is when Active has sent last, and announced when it had the VIPs announced to the neighbours last.
	sent, announced time.Time
	// lower is when an active balancer of a lower priority was heard first; zero: none is.
	lower time.Time
	// Why names the cause of the state.
	Why string
}

// Do is the steps to take, in the order of the fields.
type Do struct {
	// Send has an ADVERTISEMENT sent, with the priority 0 where Leave is set.
	Send, Leave bool
	// Changed: the state has changed.
	Changed bool
	// Announce has the VIPs announced to the neighbours again (ARP, neighbour discovery): some of them may have learnt
	// another balancer's MAC address. A change to Active announces them in any case.
	Announce bool
}

// skew is Skew_Time, and down Active_Down_Interval (section 6.1).
func (m Machine) skew() time.Duration { return time.Duration(256-int(m.Priority)) * m.interval / 256 }
func (m Machine) down() time.Duration { return 3*m.interval + m.skew() }

func (m Machine) become(s State, now time.Time, why string) Machine {
	m.State, m.Since, m.Why, m.lower = s, now, why, time.Time{}
	return m
}

// Start takes part, as Backup: no balancer has priority 255 (section 6.4.1).
func (m Machine) Start(now time.Time, why string) (Machine, Do) {
	if m.State != Initialize {
		return m, Do{}
	}
	m = m.become(Backup, now, why)
	m.interval = m.Interval
	m.Due = now.Add(m.down())
	return m, Do{Changed: true}
}

// Stop takes no part any more, and says so where this balancer was active (sections 6.4.2 and 6.4.3).
func (m Machine) Stop(now time.Time, why string) (Machine, Do) {
	if m.State == Initialize {
		return m, Do{}
	}
	was := m.State
	m = m.become(Initialize, now, why)
	m.Due = time.Time{}
	return m, Do{Send: was == Active, Leave: true, Changed: true}
}

// With goes on with other settings.
func (m Machine) With(s Settings, now time.Time) Machine {
	if m.Settings == s {
		return m
	}
	m.Settings = s
	switch m.State {
	case Active:
		m.interval, m.Due = s.Interval, now // peers hear of it
	case Backup:
		m.Due = now.Add(m.down())
	}
	return m
}

// Tick is called at Due or later, after all that was received has been given to Hear.
func (m Machine) Tick(now time.Time) (Machine, Do) {
	if m.Due.IsZero() || now.Before(m.Due) {
		return m, Do{}
	}
	switch late := now.Sub(m.Due); {
	case m.State == Active:
		if m.AnnounceInterval > 0 && now.Sub(m.announced) >= m.AnnounceInterval {
			return m.send(now).announce(now)
		}
		return m.send(now), Do{Send: true}
	case m.State == Backup && late > m.interval:
		// This process was not running: the silence is its own, and packets that were sent meanwhile may not have been
		// received. The active one has a whole interval to be heard.
		m.Due = now.Add(m.interval + m.skew())
		return m, Do{}
	case m.State == Backup && late > m.slack():
		return m.Stalled(now), Do{}
	case m.State == Backup:
		why := "no balancer was heard that is active"
		if !m.lower.IsZero() {
			why = "the active balancer has a lower priority"
		}
		m = m.become(Active, now, why)
		m.interval, m.announced = m.Interval, now
		return m.send(now), Do{Send: true, Changed: true}
	}
	return m, Do{}
}

// slack is how late this process may be before a silence may be its own, and half the time that an active one has then
// to be heard: it may have been stopped just as long, as machines of one host are, and sends at once when it goes on.
func (m Machine) slack() time.Duration { return m.interval / 4 }

// Stalled says that this process has just been late by more than slack.
func (m Machine) Stalled(now time.Time) Machine {
	if end := now.Add(2 * m.slack()); m.State == Backup && m.Due.Before(end) {
		m.Due = end
	}
	return m
}

func (m Machine) send(now time.Time) Machine {
	m.sent, m.Due = now, now.Add(m.Interval)
	return m
}

// announce has the VIPs announced again, beside an ADVERTISEMENT.
func (m Machine) announce(now time.Time) (Machine, Do) {
	m.announced = now
	return m, Do{Send: true, Announce: true}
}

// Hear takes an ADVERTISEMENT of the virtual router up.
func (m Machine) Hear(now time.Time, a Heard) (Machine, Do) {
	switch m.State {
	case Backup:
		return m.hearBackup(now, a), Do{}
	case Active:
		return m.hearActive(now, a)
	}
	return m, Do{}
}

// hearBackup takes an advertisement in state Backup (section 6.4.2).
func (m Machine) hearBackup(now time.Time, a Heard) Machine {
	if a.Priority == 0 {
		// The interval is that of the active one, which has been heard before.
		m.Due, m.lower = now.Add(m.skew()), time.Time{}
		return m
	}
	if m.Preempt && a.Priority < m.Priority {
		if m.lower.IsZero() {
			m.lower = now
		}
		if now.Sub(m.lower) >= m.PreemptDelay {
			return m // the timer runs out, and this balancer takes over
		}
	} else {
		m.lower = time.Time{}
	}
	m.interval = a.Interval
	m.Due = now.Add(m.down())
	return m
}

// hearActive takes an advertisement in state Active (section 6.4.3). Whoever else was active has answered for the VIPs,
// and may have announced them: the neighbours that took its MAC address up learn this balancer's again. The RFC leaves
// that out, and neighbours would keep the other address for as long as it answers or forwards.
func (m Machine) hearActive(now time.Time, a Heard) (Machine, Do) {
	switch {
	case a.Priority == 0:
		return m.send(now).announce(now)
	case a.Priority > m.Priority:
		return m.concede(now, a, fmt.Sprintf("%s has the priority %d", a.From, a.Priority))
	case a.Priority == m.Priority && a.Ties && a.From.Compare(a.Own) > 0:
		return m.concede(now, a, fmt.Sprintf("%s has the same priority and the greater address", a.From))
	case a.Priority == m.Priority && !a.Ties:
		return m, Do{} // decided by the other family
	case now.Sub(m.sent) > m.down():
		// This process was not running for so long that the other has rightly taken over.
		return m.yield(now, a, fmt.Sprintf("%s took over while this process was not running", a.From))
	}
	return m.send(now).announce(now) // the other, bridges and neighbours learn who is active
}

// concede yields to a balancer that has the better claim, and advertises once more, with the own priority: the other
// one may not have heard this balancer before, and would not announce the VIPs again (keepalived:
// higher_prio_send_advert).
func (m Machine) concede(now time.Time, a Heard, why string) (Machine, Do) {
	m, do := m.yield(now, a, why)
	do.Send = true
	return m, do
}

func (m Machine) yield(now time.Time, a Heard, why string) (Machine, Do) {
	m = m.become(Backup, now, why)
	m.interval = a.Interval
	m.Due = now.Add(m.down())
	return m, Do{Changed: true}
}
