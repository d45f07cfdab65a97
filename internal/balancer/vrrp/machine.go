// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"fmt"
	"net/netip"
	"time"
)

// State is the state of a virtual router (RFC 9568 section 6.4).
type State string

// The states. In Initialize the balancer takes no part; Active holds the addresses.
const (
	Initialize State = "initialize"
	Backup     State = "backup"
	Active     State = "active"
)

// Settings are how a balancer takes part.
type Settings struct {
	// VRID identifies the virtual router on the segment, 1 to 255.
	VRID uint8
	// Priority decides who is active, 1 to 254: no balancer owns the addresses.
	Priority uint8
	// Interval is the advertisement interval, in whole hundredths of a second.
	Interval time.Duration
	// Preempt has a balancer take over from an active one of a lower priority, PreemptDelay after it was
	// heard first.
	Preempt      bool
	PreemptDelay time.Duration
	// AnnounceInterval is the interval at which the active balancer announces the VIPs to the neighbours without
	// another cause; 0: never. It is rounded up to the next advertisement.
	AnnounceInterval time.Duration
}

// Advertised is an ADVERTISEMENT of another balancer.
type Advertised struct {
	From     netip.Addr
	Priority uint8
	Interval time.Duration
	// TieBreak: the addresses of this family decide between equal priorities. Only one family of a group does, because
	// two could disagree. Own is the address that this host sends from.
	TieBreak bool
	Own      netip.Addr
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
	// interval is Active_Adver_Interval, from the active router's ADVERTISEMENTs.
	interval time.Duration
	// sentAt is when Active has sent last, and announcedAt when it had the VIPs announced to the neighbours last.
	sentAt, announcedAt time.Time
	// lowerSince is the time of the first ADVERTISEMENT of an active balancer of a lower priority; zero: there is none.
	lowerSince time.Time
	// Cause is the cause of the state.
	Cause string
}

// Actions are the actions to take, in the order of the fields.
type Actions struct {
	// Send has an ADVERTISEMENT sent, with the priority 0 where Resign is set.
	Send, Resign bool
	// Changed: the state has changed.
	Changed bool
	// Announce has the VIPs announced to the neighbours again (ARP, neighbour discovery): some of them may have learnt
	// another balancer's MAC address. A change to Active announces them in any case.
	Announce bool
}

// skewTime is Skew_Time, and activeDownInterval Active_Down_Interval (section 6.1).
func (m Machine) skewTime() time.Duration {
	return time.Duration(256-int(m.Priority)) * m.interval / 256
}
func (m Machine) activeDownInterval() time.Duration { return 3*m.interval + m.skewTime() }

// setState enters a state.
func (m Machine) setState(s State, now time.Time, why string) Machine {
	m.State, m.Since, m.Cause, m.lowerSince = s, now, why, time.Time{}
	return m
}

// Start takes part, as Backup: no balancer has priority 255 (section 6.4.1).
func (m Machine) Start(now time.Time, why string) (Machine, Actions) {
	if m.State != Initialize {
		return m, Actions{}
	}
	m = m.setState(Backup, now, why)
	m.interval = m.Interval
	m.Due = now.Add(m.activeDownInterval())
	return m, Actions{Changed: true}
}

// Stop stops taking part, and sends priority 0 if this balancer was active (sections 6.4.2 and 6.4.3).
func (m Machine) Stop(now time.Time, why string) (Machine, Actions) {
	if m.State == Initialize {
		return m, Actions{}
	}
	was := m.State
	m = m.setState(Initialize, now, why)
	m.Due = time.Time{}
	return m, Actions{Send: was == Active, Resign: true, Changed: true}
}

// SetSettings changes the settings. A backup goes on waiting: the active router's last ADVERTISEMENT is as old as
// before, and only the skew differs. Where the wait that is shorter now has passed already, it ends now, and this
// process counts as no later than it was.
func (m Machine) SetSettings(s Settings, now time.Time) Machine {
	if m.Settings == s {
		return m
	}
	before := m.activeDownInterval()
	m.Settings = s
	switch m.State {
	case Active:
		m.interval, m.Due = s.Interval, now // peers learn of it
	case Backup:
		earliest := now
		if m.Due.Before(now) {
			earliest = m.Due
		}
		if m.Due = m.Due.Add(m.activeDownInterval() - before); m.Due.Before(earliest) {
			m.Due = earliest
		}
	}
	return m
}

// HandleTimer is called at Due or later, after HandleAdvert has handled all received packets.
func (m Machine) HandleTimer(now time.Time) (Machine, Actions) {
	if m.Due.IsZero() || now.Before(m.Due) {
		return m, Actions{}
	}
	switch late := now.Sub(m.Due); {
	case m.State == Active:
		if m.AnnounceInterval > 0 && now.Sub(m.announcedAt) >= m.AnnounceInterval {
			return m.markSent(now).reannounce(now)
		}
		return m.markSent(now), Actions{Send: true}
	case m.State == Backup && late > m.interval:
		// This process was stalled, and may have missed packets. The active router gets another full interval.
		m.Due = now.Add(m.interval + m.skewTime())
		return m, Actions{}
	case m.State == Backup && late > m.stallTolerance():
		return m.ExtendAfterStall(now), Actions{}
	case m.State == Backup:
		why := "no active balancer advertises"
		if !m.lowerSince.IsZero() {
			why = "the active balancer has a lower priority"
		}
		m = m.setState(Active, now, why)
		m.interval, m.announcedAt = m.Interval, now
		return m.markSent(now), Actions{Send: true, Changed: true}
	}
	return m, Actions{}
}

// stallTolerance is how late this process may be before missing ADVERTISEMENTs may be its own fault. An active router
// then gets twice that time: virtual machines of one host stall together, and it sends as soon as it runs again.
func (m Machine) stallTolerance() time.Duration { return m.interval / 4 }

// ExtendAfterStall gives the active balancer more time, because this process has just been late by more than
// stallTolerance.
func (m Machine) ExtendAfterStall(now time.Time) Machine {
	if end := now.Add(2 * m.stallTolerance()); m.State == Backup && m.Due.Before(end) {
		m.Due = end
	}
	return m
}

// markSent schedules the next ADVERTISEMENT.
func (m Machine) markSent(now time.Time) Machine {
	m.sentAt, m.Due = now, now.Add(m.Interval)
	return m
}

// reannounce has the VIPs announced again, beside an ADVERTISEMENT.
func (m Machine) reannounce(now time.Time) (Machine, Actions) {
	m.announcedAt = now
	return m, Actions{Send: true, Announce: true}
}

// HandleAdvert handles an ADVERTISEMENT of the virtual router.
func (m Machine) HandleAdvert(now time.Time, a Advertised) (Machine, Actions) {
	switch m.State {
	case Backup:
		return m.handleInBackup(now, a), Actions{}
	case Active:
		return m.handleInActive(now, a)
	}
	return m, Actions{}
}

// handleInBackup handles an advertisement in state Backup (section 6.4.2).
func (m Machine) handleInBackup(now time.Time, a Advertised) Machine {
	if a.Priority == 0 {
		// The interval is the active router's, from its earlier ADVERTISEMENTs.
		m.Due, m.lowerSince = now.Add(m.skewTime()), time.Time{}
		return m
	}
	if m.Preempt && a.Priority < m.Priority {
		if m.lowerSince.IsZero() {
			m.lowerSince = now
		}
		if now.Sub(m.lowerSince) >= m.PreemptDelay {
			return m // the timer runs out, and this balancer takes over
		}
	} else {
		m.lowerSince = time.Time{}
	}
	m.interval = a.Interval
	m.Due = now.Add(m.activeDownInterval())
	return m
}

// handleInActive handles an advertisement in state Active (section 6.4.3). The other active router has answered for the
// VIPs, and may have announced them, so they are announced again to neighbours that have cached its MAC address.
// Without that, which the RFC leaves out, neighbours would keep the other address for as long as it answers or
// forwards.
func (m Machine) handleInActive(now time.Time, a Advertised) (Machine, Actions) {
	switch {
	case a.Priority == 0:
		return m.markSent(now).reannounce(now)
	case a.Priority > m.Priority:
		return m.yieldAndAdvertise(now, a, fmt.Sprintf("%s has the priority %d", a.From, a.Priority))
	case a.Priority == m.Priority && a.TieBreak && a.From.Compare(a.Own) > 0:
		return m.yieldAndAdvertise(now, a, fmt.Sprintf("%s has the same priority and the greater address", a.From))
	case a.Priority == m.Priority && !a.TieBreak:
		return m, Actions{} // decided by the other family
	case now.Sub(m.sentAt) > m.activeDownInterval():
		// This process was stalled for so long that the other has rightly taken over.
		return m.becomeBackup(now, a, fmt.Sprintf("%s took over while this process was not running", a.From))
	}
	return m.markSent(now).reannounce(now) // the other, bridges and neighbours learn who is active
}

// yieldAndAdvertise yields to a balancer of a higher priority, and advertises once more, with the own priority: the
// other may have received no ADVERTISEMENT of this balancer, and would not announce the VIPs again (keepalived:
// higher_prio_send_advert).
func (m Machine) yieldAndAdvertise(now time.Time, a Advertised, why string) (Machine, Actions) {
	m, actions := m.becomeBackup(now, a, why)
	actions.Send = true
	return m, actions
}

// becomeBackup yields to an active balancer.
func (m Machine) becomeBackup(now time.Time, a Advertised, why string) (Machine, Actions) {
	m = m.setState(Backup, now, why)
	m.interval = a.Interval
	m.Due = now.Add(m.activeDownInterval())
	return m, Actions{Changed: true}
}
