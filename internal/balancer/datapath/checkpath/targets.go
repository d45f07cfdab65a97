// SPDX-License-Identifier: Apache-2.0

package checkpath

import (
	"fmt"
	"sync"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// targetMap is the map of check targets, by their marks.
type targetMap interface {
	Put(key, value any) error
	Delete(key any) error
}

// minTargets is how many targets are written before the first look for those of removed backends.
const minTargets = 1024

// targets are the backends that were written into the map of check targets.
type targets struct {
	mu        sync.Mutex
	byBackend map[lb.BackendKey]*checkTarget
	// last is the last mark that was given. No mark is given twice: a check of a removed backend may still use its own.
	last uint32
	// sweepAt is the number of targets at which those of removed backends are removed: twice what was left last, so
	// that changes of backends cost little.
	sweepAt int
}

// checkTarget is a backend whose row is in the map of check targets.
type checkTarget struct {
	mark   uint32
	target objects.XDPCheckTarget
}

// store writes a target into the map, and returns its mark. present returns a function that reports whether a backend
// is in the present configuration; nil where that is unknown.
func (t *targets) store(rows targetMap, key lb.BackendKey, target objects.XDPCheckTarget,
	present func() func(lb.BackendKey) bool) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.byBackend[key]
	if old != nil && old.target == target {
		return old.mark, nil
	}
	updated := &checkTarget{target: target}
	if old != nil {
		updated.mark = old.mark
	} else {
		t.sweep(rows, present)
		t.last++
		updated.mark = t.last
	}
	if err := rows.Put(updated.mark, &target); err != nil {
		return 0, fmt.Errorf("%w: writing it into the map of health checks: %v", health.ErrNoPath, err)
	}
	if t.byBackend == nil {
		t.byBackend = map[lb.BackendKey]*checkTarget{}
	}
	t.byBackend[key] = updated
	return updated.mark, nil
}

// sweep removes the targets of removed backends, if there are many targets. One that cannot be removed stays until the
// next time.
func (t *targets) sweep(rows targetMap, present func() func(lb.BackendKey) bool) {
	if len(t.byBackend) < max(t.sweepAt, minTargets) {
		return
	}
	isPresent := present()
	if isPresent == nil {
		return
	}
	for key, one := range t.byBackend {
		if !isPresent(key) && rows.Delete(one.mark) == nil {
			delete(t.byBackend, key)
		}
	}
	t.sweepAt = 2 * len(t.byBackend)
}
