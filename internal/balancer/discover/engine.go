// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// saveInterval is the interval at which unchanged sets are saved, so that the next process knows their age after a
// kill.
const saveInterval = time.Minute

// Memory keeps the known sets for the next process.
type Memory interface {
	// Load returns the data saved last; nil if there are none.
	Load() ([]byte, error)
	// Save replaces the data saved last.
	Save([]byte) error
}

// Options are the parts of an engine.
type Options struct {
	// Provider returns the provider for an origin of a service; nil: [Of].
	Provider func(lb.Service, lb.Origin) Provider
	// Memory is nil if the known sets are not kept over a restart.
	Memory Memory
	// Clock reads the machine's clocks; nil: clock.Read.
	Clock func() clock.Reading
	Log   *slog.Logger
}

// Engine follows the origins of services.
type Engine struct {
	opt     Options
	changes chan struct{}

	mu       sync.Mutex
	origins  map[string]*origin
	restored map[string]*originState
	// services are the services that are followed.
	services []lb.Service
	// start follows an origin; nil before Run.
	start func(*origin)
	// expiry fires when a set has been used for as long as is allowed.
	expiry *time.Timer
	// unsaved: changes could not be saved, for the reason in saveProblem.
	unsaved     bool
	saveProblem string
}

// origin is an origin that is followed.
type origin struct {
	originState
	key      string
	provider Provider
	cancel   context.CancelFunc
}

// originState is the answers of an origin so far.
type originState struct {
	// found is the last good set, and taken its time; zero: there was none.
	found []Found
	taken time.Time
	notes []Note
	// held are the backends of found that the last answer lacks, by their endpoints, with the time of the first answer
	// that lacked them.
	held map[netip.AddrPort]time.Time
	// problem is the reason for which there has been no newer set since the time since. awaited: this process has had
	// no answer yet, which is no problem.
	problem string
	since   time.Time
	awaited bool
	// empty: the origin says that there is no backend.
	empty bool
}

// New returns an engine with the sets that the previous process has left in the memory.
func New(opt Options) *Engine {
	if opt.Provider == nil {
		opt.Provider = NewProvider
	}
	if opt.Clock == nil {
		opt.Clock = clock.Read
	}
	e := &Engine{opt: opt, changes: make(chan struct{}, 1), origins: map[string]*origin{}}
	e.expiry = time.AfterFunc(time.Hour, e.notifyChanged)
	e.expiry.Stop()
	e.restore()
	return e
}

// Changes is signalled when Sets may return something else.
func (e *Engine) Changes() <-chan struct{} { return e.changes }

func (e *Engine) notifyChanged() {
	select {
	case e.changes <- struct{}{}:
	default:
	}
}

// SetServices replaces the services whose origins are followed. An origin that stays keeps its answers.
func (e *Engine) SetServices(services []lb.Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.services = nil // few services have an origin
	for i := range services {
		if services[i].Discovery.On() {
			e.services = append(e.services, services[i])
		}
	}
	wanted := map[string]bool{}
	for _, s := range e.services {
		for _, of := range s.Discovery.Origins() {
			k := originKey(s, of)
			wanted[k] = true
			if e.origins[k] == nil {
				e.followOrigin(k, e.opt.Provider(s, of))
			}
		}
	}
	for k, o := range e.origins {
		if !wanted[k] {
			o.cancel()
			delete(e.origins, k)
			e.unsaved = true
		}
	}
	e.setExpiry()
}

// followOrigin follows another origin.
func (e *Engine) followOrigin(k string, p Provider) {
	o := &origin{key: k, provider: p, cancel: func() {}}
	if r := e.restored[k]; r != nil {
		o.originState = *r
	}
	o.awaited = true
	e.origins[k] = o
	if e.start != nil {
		e.start(o)
	}
}

// Run follows the origins until the context ends. Call it once.
func (e *Engine) Run(ctx context.Context) {
	var following sync.WaitGroup
	e.mu.Lock()
	e.start = func(o *origin) {
		own, cancel := context.WithCancel(ctx)
		o.cancel = cancel
		following.Go(func() { o.provider.Watch(own, func(a Answer) { e.storeAnswer(own, o, a) }) })
	}
	for _, k := range slices.Sorted(maps.Keys(e.origins)) {
		e.start(e.origins[k])
	}
	e.mu.Unlock()
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			e.mu.Lock()
			e.save()
			e.mu.Unlock()
		}
	}
	e.mu.Lock()
	e.start = func(*origin) {}
	e.save()
	e.mu.Unlock()
	following.Wait()
	e.expiry.Stop()
}

// storeAnswer stores an origin's answer, saves it, and only then announces it: a set in force is always a saved one.
func (e *Engine) storeAnswer(ctx context.Context, o *origin, a Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil { // it is no longer watched
		return
	}
	before, now := o.originState, time.Now()
	o.awaited = false
	switch {
	case a.Err != nil:
		o.setProblem(a.Err.Error(), now)
	case len(a.Found) == 0 && !a.Authoritative:
		o.setProblem(cmp.Or(a.EmptyReason, "names no backend"), now)
		o.empty, o.notes = true, a.Notes
	default:
		next := originState{found: slices.Clone(a.Found), taken: now, notes: a.Notes}
		next.addHeld(&before, e.longestHolding(o.key), now)
		next.found = sorted(next.found)
		o.originState = next
	}
	if len(before.held)+len(o.held) > 0 {
		e.setExpiry()
	}
	if before.sameAs(&o.originState) {
		return
	}
	e.unsaved = true
	e.save()
	e.setExpiry()
	e.notifyChanged()
}

// setProblem records why there is no newer set.
func (k *originState) setProblem(why string, now time.Time) {
	k.problem, k.empty = why, false
	if k.since.IsZero() {
		k.since = now
	}
}

// sameAs reports whether another state is equal but for its time.
func (k *originState) sameAs(o *originState) bool {
	return k.awaited == o.awaited && k.problem == o.problem && k.empty == o.empty &&
		k.taken.IsZero() == o.taken.IsZero() &&
		slices.Equal(k.found, o.found) && slices.Equal(k.notes, o.notes)
}

// sorted returns a set in an order that is always the same.
func sorted(found []Found) []Found {
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address),
			cmp.Compare(a.Port, b.Port))
	})
	return found
}

// Sets returns the known sets of the services' origins.
func (e *Engine) Sets(services []lb.Service) (sets []lb.Discovered) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for i := range services {
		s := &services[i]
		for _, of := range s.Discovery.Origins() {
			set := lb.Discovered{Service: s.Name, Origin: of}
			if k := e.stateOf(originKey(*s, of)); k != nil {
				k.fillService(&set, *s, of, now)
			}
			sets = append(sets, set)
		}
	}
	return sets
}

// stateOf returns the answers of an origin so far; nil if there is none.
func (e *Engine) stateOf(k string) *originState {
	if o := e.origins[k]; o != nil {
		return &o.originState
	}
	return e.restored[k]
}

// fillService fills in the set of a service.
func (k *originState) fillService(set *lb.Discovered, s lb.Service, of lb.Origin, now time.Time) {
	keeping := s.Discovery.LimitsOf(of)
	set.Taken = k.taken
	for _, note := range k.notes {
		if note.Service == "" || note.Service == s.Name {
			set.Notes = append(set.Notes, note.Text)
		}
	}
	for _, f := range k.found {
		if f.Service != "" && f.Service != s.Name || k.isExpired(f, s.Discovery.DNS.Hold, now) {
			continue
		}
		b := f.Backend
		if b.Origin = of; of == lb.FromDNS && b.Port == 0 {
			b.Port = s.Discovery.DNS.Port
		}
		set.Backends = append(set.Backends, b)
	}
	if n := len(set.Backends); n > int(keeping.Max) {
		set.Backends = set.Backends[:keeping.Max]
		set.Notes = append(set.Notes, fmt.Sprintf("names %d backends, of which %d are taken: raise `most`", n,
			keeping.Max))
	}
	if k.since.IsZero() {
		return
	}
	set.Until = k.since.Add(keeping.Stale)
	expired := !now.Before(set.Until)
	if expired && k.empty {
		set.Backends = nil
	}
	set.Overdue = expired && !k.empty
	if k.awaited && !expired {
		set.Until = time.Time{}
		return
	}
	set.Problem, set.Since = cmp.Or(k.problem, "has not answered since the start"), k.since
}

// setExpiry sets the timer to the time at which the next set expires.
func (e *Engine) setExpiry() {
	var next time.Time
	now := time.Now()
	for _, s := range e.services {
		for _, of := range s.Discovery.Origins() {
			k := e.stateOf(originKey(s, of))
			if k == nil {
				continue
			}
			until := k.nextHeldExpiry(s.Discovery.DNS.Hold, now)
			if !k.since.IsZero() {
				until = k.since.Add(s.Discovery.LimitsOf(of).Stale)
			}
			if until.After(now) && (next.IsZero() || until.Before(next)) {
				next = until
			}
		}
	}
	if next.IsZero() {
		e.expiry.Stop()
		return
	}
	e.expiry.Reset(time.Until(next))
}
