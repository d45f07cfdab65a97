// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// A backend that is discovered may be absent for a while: its container restarts, its host reboots. Nobody has decided
// that, so that what operations have changed of it stays with its name, however long the gap is within absentFor. A
// backend that leaves the configuration itself was taken out by whoever owns that, and its operations end.
const (
	// absentFor is how long what is known of an absent backend is kept.
	absentFor = 24 * time.Hour
	// mostAbsent is of how many backends it is kept: names of containers may be new each time.
	mostAbsent = 1000
)

// absence is a backend that was discovered, and is not any more.
type absence struct {
	since time.Time
	// was is the backend as it was found last.
	was lb.Backend
}

// lapsed says whether a backend has been absent for so long that nothing is kept of it any more.
func (a *absence) lapsed(now time.Time) bool { return a != nil && now.Sub(a.since) >= absentFor }

// mayReturn says whether a backend that a configuration does not have may be discovered again.
func (l *layout) mayReturn(name backendName, was lb.Backend) bool {
	i, there := l.named[name.service]
	return there && was.Origin != "" && l.cfg.Services[i].Discovery.On()
}

// dropOldest deletes as many absent backends as there are too many, those that have been absent for longest.
func dropOldest[V any](all map[backendName]V, absent func(V) *absence) (dropped []backendName) {
	for name, v := range all {
		if absent(v) != nil {
			dropped = append(dropped, name)
		}
	}
	if len(dropped) <= mostAbsent {
		return nil
	}
	slices.SortFunc(dropped, func(a, b backendName) int {
		return cmp.Or(absent(all[a]).since.Compare(absent(all[b]).since), cmp.Compare(a.String(), b.String()))
	})
	dropped = dropped[:len(dropped)-mostAbsent]
	for _, name := range dropped {
		delete(all, name)
	}
	return dropped
}

// absentees are the backends of any service that were discovered and are not any more, whether operations have changed
// them or not.
type absentees map[backendName]*absence

// follow takes note of a change of the configuration: who is absent from now on, and who is back.
func (all absentees) follow(before, now *layout) {
	for i := range before.cfg.Services {
		s := &before.cfg.Services[i]
		if now.holdsBackends(s) {
			continue
		}
		for _, b := range s.Backends {
			if name := nameOf(*s, b); now.mayReturn(name, b) {
				all[name] = &absence{time.Now(), b}
			}
		}
	}
	maps.DeleteFunc(all, func(_ backendName, a *absence) bool { return a.lapsed(time.Now()) })
	for name := range now.locate(maps.Keys(all)) {
		delete(all, name)
	}
	dropOldest(all, func(a *absence) *absence { return a })
}

// holdsBackends says whether a configuration has a service of the same name with the same backends.
func (l *layout) holdsBackends(s *lb.Service) bool {
	i, there := l.named[s.Name]
	return there && slices.Equal(l.cfg.Services[i].Backends, s.Backends)
}

// lapse ends what operations have changed of backends that have been absent for too long.
func (c *Controller) lapse() error {
	overlays, now := maps.Clone(c.view.overlays), time.Now()
	var lapsed []backendName
	for name, o := range overlays {
		if o.absent.lapsed(now) {
			lapsed = append(lapsed, name)
			delete(overlays, name)
		}
	}
	if len(lapsed) == 0 {
		return nil
	}
	if err := c.become(c.view.withOverlays(overlays, nil, now)); err != nil {
		return fmt.Errorf("end what operations have changed of backends that are absent: %w", err)
	}
	c.mu.Lock()
	why := fmt.Sprintf("by %s the backend had been absent for %s", now.Format(time.DateTime), absentFor)
	c.history = unrecoverable(c.history, lapsed, why)
	c.mu.Unlock()
	lines := tale{log: c.opt.Log.Warn}
	slices.SortFunc(lapsed, func(a, b backendName) int { return cmp.Compare(a.String(), b.String()) })
	for _, name := range lapsed {
		lines.say(name.about(), "%s has been absent for %s, and what operations had changed of it ends", name, absentFor)
	}
	lines.end("what operations had changed ends of %d more backends that have been absent for long")
	return nil
}

// unrecoverable returns a history in which nothing of these backends can be taken back any more, and why.
func unrecoverable(history []operation, names []backendName, why string) []operation {
	history = slices.Clone(history)
	for i := range history {
		history[i].changes = slices.Clone(history[i].changes)
		for k := range history[i].changes {
			if change := &history[i].changes[k]; change.lost == "" && slices.Contains(names, change.name) {
				change.lost = why
			}
		}
	}
	return history
}
