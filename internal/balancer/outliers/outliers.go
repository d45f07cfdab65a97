// SPDX-License-Identifier: Apache-2.0

// Package outliers judges backends by their answers to clients: one that fails most of its new flows, while others do
// not, is ejected for a while.
package outliers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Interval is how often counters are to be read. It is also how long an answer may take: newer connections and
// datagrams are not judged yet.
const Interval = time.Second

// Service is a service that ejects backends, as it is now.
type Service struct {
	lb.Outliers
	Protocol lb.Protocol
	Backends []Backend
}

// Backend is a backend of such a service.
type Backend struct {
	Key lb.BackendKey
	// Eligible: nothing but its ejection keeps it from new flows: no operation, no check, and a path leads to it.
	Eligible bool
	Count    lb.BackendCount
}

// Ejection is a time in which a backend takes no new flow.
type Ejection struct {
	Since, Until time.Time
	// Times is how often it was ejected, less one for each interval that it has served well since.
	Times uint32
	// Reason says of the backend why, as in "has answered 0 of 40 new connections in 5s".
	Reason string
}

// Kind is the kind of a change to a backend's ejection.
type Kind uint8

// The kinds of changes.
const (
	// Ejected: it takes no new flow until Change.Until.
	Ejected Kind = iota
	// Returned: its pause is over.
	Returned
	// ReturnedEarly: it returns early, for no other backend serves.
	ReturnedEarly
	// Superseded: an operation, its checks or its path keep it from new flows, and it is not
	// ejected besides.
	Superseded
	// Spared: it fails as one that would be ejected, and goes on for the reason Change.Why.
	Spared
)

// Change is a change to the ejection of a backend.
type Change struct {
	Key  lb.BackendKey
	Kind Kind
	// Ejection is the one that begins or ends; of one that is spared it has the Reason alone.
	Ejection
	// Why says why it is spared.
	Why string
}

// Engine remembers the counters of backends. It is for one goroutine.
type Engine struct{ backends map[lb.BackendKey]*backend }

// New returns an engine that knows nothing yet.
func New() *Engine { return &Engine{backends: map[lb.BackendKey]*backend{}} }

// Update evaluates the present counters of the backends of all services that eject any, and returns the changes. It
// forgets other backends.
func (e *Engine) Update(now time.Time, services []Service) (changes []Change) {
	seen := make(map[lb.BackendKey]*backend, len(e.backends))
	for i := range services {
		s := e.serviceOf(&services[i])
		for j, b := range s.backends {
			seen[s.Backends[j].Key] = b
			b.addSample(now, sampleOf(now, s.Protocol, s.Backends[j].Count), s.Interval)
			s.judgements[j] = b.evaluate(s.Service)
		}
		changes = append(changes, s.returnBackends(now)...)
		changes = append(changes, s.eject(now)...)
		s.decayTimes(now)
	}
	e.backends = seen
	return changes
}

// Ejections returns the ejections in force.
func (e *Engine) Ejections() map[lb.BackendKey]Ejection {
	all := map[lb.BackendKey]Ejection{}
	for key, b := range e.backends {
		if b.ejection != nil {
			all[key] = *b.ejection
		}
	}
	return all
}

// Spared returns why backends that fail are not ejected.
func (e *Engine) Spared() map[lb.BackendKey]string {
	all := map[lb.BackendKey]string{}
	for key, b := range e.backends {
		if b.spared != "" {
			all[key] = b.spared
		}
	}
	return all
}

// Return ends the ejection of a backend, and reports whether there was one.
func (e *Engine) Return(key lb.BackendKey, now time.Time) bool {
	b := e.backends[key]
	if b == nil || b.ejection == nil {
		return false
	}
	b.reset(now)
	return true
}

// service is a service with the remembered state of its backends, and the judgements on them.
type service struct {
	*Service
	backends []*backend
	// judgements are the judgements on the backends.
	judgements []evaluation
}

func (e *Engine) serviceOf(s *Service) service {
	members := service{s, make([]*backend, len(s.Backends)), make([]evaluation, len(s.Backends))}
	for j, b := range s.Backends {
		if e.backends[b.Key] == nil {
			e.backends[b.Key] = &backend{}
		}
		members.backends[j] = e.backends[b.Key]
	}
	return members
}

// serves reports whether backend j takes new flows as far as the service's outliers are concerned.
func (s service) serves(j int) bool { return s.Backends[j].Eligible && s.backends[j].ejection == nil }

// countEjected returns how many backends are wanted, and how many of them are ejected.
func (s service) countEjected() (wanted, out int) {
	for j := range s.Backends {
		if s.Backends[j].Eligible {
			wanted++
			if s.backends[j].ejection != nil {
				out++
			}
		}
	}
	return wanted, out
}

// returnBackends ends ejections.
func (s service) returnBackends(now time.Time) (changes []Change) {
	wanted, out := s.countEjected()
	for j, b := range s.backends {
		if b.ejection == nil {
			continue
		}
		// A clock that was set, or a reload, may have left more than there is to wait.
		if most := now.Add(s.LongestPause); b.ejection.Until.After(most) {
			b.ejection.Until = most
		}
		kind := Returned
		switch {
		case !s.Backends[j].Eligible:
			kind = Superseded
		case wanted == out:
			kind = ReturnedEarly
		case now.Before(b.ejection.Until):
			continue
		}
		changes = append(changes, Change{Key: s.Backends[j].Key, Kind: kind, Ejection: *b.ejection})
		b.reset(now)
	}
	return changes
}

// eject ejects the backends that fail, the worst first, as many as may be at a time.
func (s service) eject(now time.Time) (changes []Change) {
	var failing []int
	for j, b := range s.backends {
		switch {
		case s.serves(j) && s.judgements[j].known && s.judgements[j].fails:
			failing = append(failing, j)
			b.failed = now
		case now.Sub(b.failed) >= s.Interval: // not at once: it may be about to fail again
			b.spared = ""
		}
	}
	slices.SortStableFunc(failing, func(a, b int) int {
		return cmp.Compare(s.judgements[b].share,
			s.judgements[a].share)
	})
	for _, j := range failing {
		b, change := s.backends[j], Change{Key: s.Backends[j].Key, Ejection: Ejection{Reason: s.judgements[j].text}}
		if change.Why = s.spareReason(j); change.Why != "" {
			change.Kind = Spared
			if b.spared != change.Why {
				b.spared = change.Why
				changes = append(changes, change)
			}
			continue
		}
		b.spared = ""
		b.times++
		change.Since, change.Until, change.Times = now, now.Add(s.PauseOf(b.times)), b.times
		ejection := change.Ejection
		b.ejection = &ejection
		changes = append(changes, change)
	}
	return changes
}

// spareReason says why backend j, which fails, is not ejected; "" where it is. Where others are judged, and all
// that have something to do fail as well, the cause is not the backend's: the network on its path, or clients that
// send requests which no backend accepts.
func (s service) spareReason(j int) string {
	wanted, out := s.countEjected()
	evaluated, healthy := 0, 0
	for k := range s.Backends {
		if k == j || !s.serves(k) {
			continue
		}
		if s.judgements[k].known {
			evaluated++
		}
		if s.judgements[k].tried > 0 && !s.judgements[k].fails {
			healthy++
		}
	}
	switch {
	case wanted-out <= 1:
		return "no other backend serves"
	case evaluated > 0 && healthy == 0:
		return "the others fail as well"
	case out >= s.MaxEjected(wanted):
		return fmt.Sprintf("%d of %d backends are ejected already", out, wanted)
	}
	return ""
}

// decayTimes lets pauses that have grown fall by a step for each interval that was served well.
func (s service) decayTimes(now time.Time) {
	for j, b := range s.backends {
		if s.serves(j) && s.judgements[j].known && !s.judgements[j].fails && b.times > 0 &&
			now.Sub(b.since) >= s.Interval {
			b.times--
			b.since = now
		}
	}
}

// SavedBackend is the state of a backend that Save returns.
type SavedBackend struct {
	Backend lb.BackendKey `json:"backend"`
	Since   time.Time     `json:"since,omitzero"`
	Until   time.Time     `json:"until,omitzero"`
	Times   uint32        `json:"times"`
	Reason  string        `json:"reason,omitempty"`
}

// Save returns the state for the next process to go on with.
func (e *Engine) Save() (all []SavedBackend) {
	for key, b := range e.backends {
		r := SavedBackend{Backend: key, Times: b.times}
		if b.ejection != nil {
			r.Since, r.Until, r.Reason = b.ejection.Since, b.ejection.Until, b.ejection.Reason
		}
		if b.times > 0 || b.ejection != nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b SavedBackend) int {
		return cmp.Compare(fmt.Sprint(a.Backend),
			fmt.Sprint(b.Backend))
	})
	return all
}

// Restore goes on with the state that the previous process saved.
func (e *Engine) Restore(all []SavedBackend, now time.Time) {
	for _, r := range all {
		b := &backend{times: r.Times, since: now}
		if now.Before(r.Until) {
			b.ejection = &Ejection{Since: r.Since, Until: r.Until, Times: r.Times, Reason: r.Reason}
		}
		e.backends[r.Backend] = b
	}
}
