// SPDX-License-Identifier: Apache-2.0

package health

import (
	"container/heap"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// batch is how many backends Watch changes at a time: between two batches answers are noted,
// checks start, and verdicts are read.
const batch = 256

// SetTargets replaces the checks. One that stays keeps its verdict and its times; a check that differs from a former
// one only in its times keeps the verdict too. The differences are computed without the engine's lock, and applied
// batch by batch, so that of 100,000 backends no answer and no reader of a verdict waits for all.
func (e *Engine) SetTargets(wanted []Wanted) {
	e.watching.Lock()
	defer e.watching.Unlock()
	e.call++
	e.interner = newInterner(e.targets) // of what stays: what was wanted once need not be known for ever
	c := e.newChanges()
	c.compare(wanted)
	for _, w := range e.watches {
		if w.seen != e.call {
			c.remove(w)
		}
	}
	c.findLeft()
	e.apply(c)
}

// UpdateTargets is Watch by the differences: put are the checks of backends that are new or of which something else may
// be asked, and removed backends that are no longer wanted, but for those of put. Its cost grows with these, and not
// with the other backends.
func (e *Engine) UpdateTargets(put []Wanted, removed []lb.BackendKey) {
	e.watching.Lock()
	defer e.watching.Unlock()
	e.call++
	if e.interner == nil || e.interner.made > len(e.targets)+mostIdle {
		e.interner = newInterner(e.targets)
	}
	c := e.newChanges()
	c.compare(put)
	for _, key := range removed {
		if w := e.watches[key]; w != nil && w.seen != e.call {
			w.seen = e.call // it may be named twice
			c.remove(w)
		}
	}
	c.findLeft()
	e.apply(c)
}

// apply has the checks changed. e.watching is held.
func (e *Engine) apply(c *changes) {
	e.interner.forgetLists()
	for some := range slices.Chunk(c.others, batch) {
		e.withLock(func() {
			for i := range some {
				e.setTargets(&some[i], c)
			}
		})
	}
	for some := range slices.Chunk(c.gone, batch) {
		e.withLock(func() {
			for _, w := range some {
				delete(e.watches, w.backend)
				delete(e.changed, w.backend)
			}
		})
	}
	e.withLock(func() { clear(e.dropped) })
	for some := range slices.Chunk(c.left, batch) {
		e.withLock(func() {
			for _, t := range some {
				e.dropBackends(t)
			}
		})
	}
	e.withLock(func() {
		if len(e.targets) == 0 {
			e.bucket.rate = 0 // a rest of rounding
		}
	})
	e.wakeRun()
}

// withLock does something with e.mu held.
func (e *Engine) withLock(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
}

// changes are the differences that a call of Watch or Amend applies.
type changes struct {
	engine *Engine
	now    time.Time
	// others are backends that are new, or of which something else is asked.
	others []other
	gone   []*watch
	// fresh are the targets to be made; previous are, by id, those that no backend has any more, whose verdicts fresh
	// ones go on with.
	fresh    map[targetKey]*target
	previous map[uint64]*target
	// left are targets that some backend no longer has.
	left []*target
}

// other is a backend, and its checks.
type other struct {
	w       *watch
	targets []*target
	any     bool
}

func (e *Engine) newChanges() *changes {
	return &changes{engine: e, now: time.Now(), fresh: map[targetKey]*target{}, previous: map[uint64]*target{}}
}

// compare finds the differences between present and wanted checks of backends. e.watching is held, and e.mu is not.
func (c *changes) compare(wanted []Wanted) {
	e, targets := c.engine, []*target(nil)
	for i := range wanted {
		one := &wanted[i]
		targets = targets[:0]
		for _, check := range e.interner.specs(one.Checks) {
			targets = append(targets, c.targetFor(e.interner.key(one, check)))
		}
		w := e.watches[one.Backend]
		if w != nil && w.any == one.Any && slices.Equal(w.targets, targets) {
			w.seen = e.call
			continue
		}
		if w == nil {
			w = &watch{backend: one.Backend, since: c.now, selfReport: selfReport{weight: fullWeight}}
		}
		w.seen, w.other = e.call, e.call
		c.others = append(c.others, other{w, slices.Clone(targets), one.Any})
	}
}

// targetFor returns the target of that key, or one that is to be made.
func (c *changes) targetFor(key targetKey) *target {
	t := c.engine.targets[key]
	if t == nil {
		t = c.fresh[key]
	}
	if t == nil {
		t = &target{key: key, id: key.identify(), machine: machine{state: Unknown},
			selfReport: selfReport{weight: fullWeight}, queueIndex: -1}
		c.fresh[key] = t
	}
	t.seen = c.engine.call
	return t
}

// remove notes that a backend is no longer wanted.
func (c *changes) remove(w *watch) {
	w.other, w.gone = c.engine.call, true
	c.gone = append(c.gone, w)
}

// findLeft finds the targets that backends have no more, and those of them that none wants.
func (c *changes) findLeft() {
	left := map[*target]struct{}{}
	for _, o := range c.others {
		for _, t := range o.w.targets {
			left[t] = struct{}{}
		}
	}
	for _, w := range c.gone {
		for _, t := range w.targets {
			left[t] = struct{}{}
		}
	}
	for t := range left {
		c.left = append(c.left, t)
		if !c.isWanted(t) {
			c.previous[t.id] = t
		}
	}
}

// isWanted reports whether a backend has a target after the changes: one that was named, or one that stays as it is.
func (c *changes) isWanted(t *target) bool {
	return t.seen == c.engine.call ||
		slices.ContainsFunc(t.watches, func(w *watch) bool { return w.other != c.engine.call })
}

// setTargets has something else asked of a backend. e.mu is held.
func (e *Engine) setTargets(o *other, c *changes) {
	w := o.w
	if e.watches[w.backend] != w {
		e.watches[w.backend] = w
		e.changed[w.backend] = struct{}{}
		e.signal()
	}
	if w.state == Failing {
		w.previous = w.reason()
	}
	was := w.targets
	w.any, w.targets = o.any, o.targets
	for i, t := range o.targets {
		if e.targets[t.key] == nil {
			e.addTarget(t, c)
		}
		if !slices.Contains(was, t) && !slices.Contains(o.targets[:i], t) {
			t.watches = append(t.watches, w)
		}
	}
	e.updateVerdict(w)
}

// addTarget puts a new target among those that are asked. e.mu is held.
func (e *Engine) addTarget(t *target, c *changes) {
	if previous := c.previous[t.id]; previous != nil && previous.state != Unknown {
		e.dropped[t.id] = previous.savedState()
	}
	e.restoreState(t)
	t.due = t.start(e.now(), e.now()+t.key.spec.check.Delay)
	t.next = t.due
	e.targets[t.key] = t
	e.bucket.setRate(t, true)
	heap.Push(&e.queue, t)
}

// dropBackends takes the backends off a target that have others now, and forgets it when none has it. Its state is kept
// up to the next call in case that brings it back, which is how a refused reload ends: else a dead backend would get
// traffic by it. e.mu is held.
func (e *Engine) dropBackends(t *target) {
	t.watches = slices.DeleteFunc(t.watches, func(w *watch) bool {
		return w.gone || !slices.Contains(w.targets, t)
	})
	if len(t.watches) > 0 {
		return
	}
	if t.state != Unknown {
		e.dropped[t.id] = t.savedState()
	}
	t.gone = true
	e.bucket.setRate(t, false)
	delete(e.targets, t.key)
	if t.queueIndex >= 0 {
		heap.Remove(&e.queue, t.queueIndex)
	}
}
