// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault or of change.
type Kind string

// Faults of one balancer; Part affects two.
const (
	KillDaemon Kind = "kill-daemon" // SIGKILL to the daemon; data plane and speaker go on
	KillAll    Kind = "kill-all"    // SIGKILL to daemon and speaker; the data plane stays for the next start
	// Lose is KillAll, and removes the data plane: the machine is lost, with all its flows.
	Lose        Kind = "lose"
	Stop        Kind = "stop"         // SIGTERM, and a start
	Restart     Kind = "restart"      // SIGUSR2, and a start
	HangDaemon  Kind = "hang-daemon"  // SIGSTOP and SIGCONT
	HangSpeaker Kind = "hang-speaker" // the same, of the process that speaks BGP
	KillSpeaker Kind = "kill-speaker"
	Cut         Kind = "cut"   // the link to the router goes down
	Part        Kind = "part"  // two members receive nothing from each other
	Drain       Kind = "drain" // jeoul balancer drain
)

// Faults of a backend, changes of the configuration, and attacks by unknown senders.
const (
	BackendDies   Kind = "backend-dies"   // its sockets close
	BackendLink   Kind = "backend-link"   // its link goes down at the switch
	BackendDrain  Kind = "backend-drain"  // by API, on one balancer after the other
	BackendLeaves Kind = "backend-leaves" // a reload without it, and one with it
	Reweigh       Kind = "reweigh"        // a reload with another weight
	// UnknownSender sends garbage to the ports of members, from a host that is no member, and from one that is.
	UnknownSender Kind = "stranger"
)

// ofBalancers and ofBackends are in the order in which they are drawn, so that a change of the order changes the
// schedule.
var (
	ofBalancers = []Kind{KillDaemon, KillAll, Lose, Stop, Restart, HangDaemon, HangSpeaker, KillSpeaker, Cut,
		Part, Drain}
	ofBackends = []Kind{BackendDies, BackendLink, BackendDrain, BackendLeaves, Reweigh}
)

// OfBalancer reports whether a fault is a fault of balancers.
func (k Kind) OfBalancer() bool { return slices.Contains(ofBalancers, k) }

// Takes reports whether a backend cannot continue its connections.
func (k Kind) Takes() bool { return k == BackendDies || k == BackendLink || k == BackendLeaves }

// Fault is a fault of a schedule.
type Fault struct {
	// Number counts from 1.
	Number int  `json:"number"`
	Kind   Kind `json:"kind"`
	// After is the time from the beginning of the previous fault to the beginning of this one.
	After time.Duration `json:"after_ns"`
	// For is how long it lasts; 0 if it has no duration.
	For time.Duration `json:"for_ns,omitempty"`
	// Balancers are its targets, from 0; without any, Backend is the target.
	Balancers []int `json:"balancers,omitempty"`
	Backend   int   `json:"backend,omitempty"`
	// Weight is the new weight of Reweigh.
	Weight int `json:"weight,omitempty"`
}

// String returns a line of the log.
func (f Fault) String() string {
	on := fmt.Sprintf("balancers %v", f.Balancers)
	if !f.Kind.OfBalancer() && f.Kind != UnknownSender {
		on = fmt.Sprintf("backend %d", f.Backend)
	}
	text := fmt.Sprintf("fault %d: %s of %s", f.Number, f.Kind, on)
	if f.For > 0 {
		text += fmt.Sprintf(" for %v", f.For)
	}
	if f.Weight > 0 {
		text += fmt.Sprintf(", weight %d", f.Weight)
	}
	return text
}

// Known reports whether there is such a kind.
func (k Kind) Known() bool {
	return k == UnknownSender || slices.Contains(ofBalancers, k) || slices.Contains(ofBackends, k)
}

// Among is the set from which faults are drawn.
type Among struct {
	Balancers, Backends int
	// Kinds are the kinds that are drawn; nil: all.
	Kinds []Kind
}

// of returns those of kinds that may be drawn, in their order.
func (a Among) of(kinds []Kind) []Kind {
	if a.Kinds == nil {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return !slices.Contains(a.Kinds, k) })
}

const (
	// minGap and maxGap bound the time between the beginnings of two faults.
	minGap, maxGap = 2 * time.Second, 8 * time.Second
	// settling is the time after the planned end of a balancer's fault in which the fault still counts: the balancer
	// starts, and its members send it their flows.
	settling = 12 * time.Second
	// beside is the percentage of cases in which a fault of a balancer begins while a fault of another one goes on.
	beside = 25
	// strange is the percentage of faults that are an unknown sender's, and balancing the percentage of the others that
	// are a balancer's.
	strange, balancing = 6, 60
)

// Schedule returns the sequence of faults that a seed determines, of about the given length. Equal arguments give equal
// schedules.
func Schedule(seed uint64, length time.Duration, among Among) []Fault {
	d := &drawing{Rand: rand.New(rand.NewPCG(seed, 0)), among: among, ofBalancers: among.of(ofBalancers),
		ofBackends: among.of(ofBackends),
		balancers:  make([]time.Duration, among.Balancers), backends: make([]time.Duration, among.Backends)}
	var all []Fault
	var last time.Duration
	for number := 1; ; number++ {
		gap := d.between(minGap, maxGap)
		if d.now += gap; d.now > length {
			return all
		}
		fault, any := d.draw()
		if !any {
			number--
			continue
		}
		fault.Number, fault.After = number, d.now-last
		last = d.now
		all = append(all, fault)
	}
}

// drawing is a schedule that is being made.
type drawing struct {
	*rand.Rand
	among                   Among
	ofBalancers, ofBackends []Kind
	now                     time.Duration
	// The times until which each is occupied.
	balancers, backends []time.Duration
}

func (d *drawing) between(least, most time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return least + step*time.Duration(d.IntN(int((most-least)/step)+1))
}

// free returns the indices of the balancers or backends that have no fault now.
func (d *drawing) free(until []time.Duration) (free []int) {
	for i, at := range until {
		if at <= d.now {
			free = append(free, i)
		}
	}
	d.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	return free
}

// draw draws a fault; false if there is none of the kinds that may be drawn.
func (d *drawing) draw() (Fault, bool) {
	if d.IntN(100) < strange {
		return d.drawUnknownSender()
	}
	balancers, backends := d.free(d.balancers), d.free(d.backends)
	// At most two faults of balancers go on, of which one may be of a pair; and all but two of the backends have none.
	room := len(balancers) == d.among.Balancers || len(balancers) == d.among.Balancers-1 && d.IntN(100) < beside
	if room && len(d.ofBalancers) > 0 && d.IntN(100) < balancing {
		return d.drawOfBalancer(balancers), true
	}
	if len(backends) > d.among.Backends-2 && len(d.ofBackends) > 0 {
		return d.drawOfBackend(backends[0]), true
	}
	return d.drawUnknownSender()
}

func (d *drawing) drawUnknownSender() (Fault, bool) {
	return Fault{Kind: UnknownSender, Balancers: []int{d.IntN(d.among.Balancers)}}, d.among.Kinds == nil ||
		slices.Contains(d.among.Kinds, UnknownSender)
}

func (d *drawing) drawOfBalancer(free []int) Fault {
	f := Fault{Kind: d.ofBalancers[d.IntN(len(d.ofBalancers))], Balancers: free[:1]}
	switch f.Kind {
	case Restart:
		f.For = d.between(0, 3*time.Second)
	case KillSpeaker:
	case HangDaemon, HangSpeaker:
		// Less than the hold time (3 s) and than the members' timeout (5 s), or more.
		f.For = d.between(300*time.Millisecond, 2*time.Second)
		if d.IntN(2) == 0 {
			f.For = d.between(6*time.Second, 15*time.Second)
		}
	case Part:
		if len(free) < 2 {
			f.Kind = Cut
		} else {
			f.Balancers = free[:2]
		}
		f.For = d.between(time.Second, 20*time.Second)
	default:
		f.For = d.between(time.Second, 12*time.Second)
	}
	f.Balancers = slices.Sorted(slices.Values(f.Balancers))
	for _, n := range f.Balancers {
		d.balancers[n] = d.now + f.For + settling
	}
	return f
}

func (d *drawing) drawOfBackend(backend int) Fault {
	f := Fault{Kind: d.ofBackends[d.IntN(len(d.ofBackends))], Backend: backend}
	if f.Kind == Reweigh {
		f.Weight = 1 + d.IntN(4)
	} else {
		f.For = d.between(time.Second, 15*time.Second)
	}
	d.backends[backend] = d.now + f.For + settling/2
	return f
}
