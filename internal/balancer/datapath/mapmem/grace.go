// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
)

// Memory that packets may still be reading must not be written. A packet is an RCU reader: once a grace period has
// passed, none that began before can be left, and memory that could not be found any more when it began can be reused.

// graceAge is for how long memory is idle before we wait for a grace period: so memory that several changes free needs
// only one wait.
const graceAge = 20 * time.Millisecond

// Grace has the functions to be called once no packet reads memory that was in use.
type Grace struct {
	// mu is the datapath's: it guards this, and the memory that the waiting functions touch.
	mu      *sync.Mutex
	waiting []idle
	// done counts the functions that have been called; the first that waits is number done.
	done uint64
	// running says that a goroutine is waiting in the background.
	running bool
	// Synchronize waits for a grace period.
	Synchronize func()
}

// idle is memory that is no longer used since a time, and the function that frees it.
type idle struct {
	since time.Time
	free  func()
}

func NewGrace(mu *sync.Mutex) *Grace { return &Grace{mu: mu, Synchronize: rcu.Wait} }

// NewManualGrace returns one for memory that no program reads: waiting memory is freed by Wait alone.
func NewManualGrace() *Grace { return &Grace{mu: &sync.Mutex{}, running: true, Synchronize: func() {}} }

// AfterGrace calls free after a grace period, with the lock held. The caller holds it.
func (g *Grace) AfterGrace(free func()) {
	g.waiting = append(g.waiting, idle{time.Now(), free})
	if !g.running {
		g.running = true
		go g.run()
	}
}

// run waits until nothing is left to wait for.
func (g *Grace) run() {
	for {
		<-time.After(graceAge)
		g.mu.Lock()
		due := g.due(time.Now())
		wait := due > g.done
		g.mu.Unlock()
		if wait {
			g.Synchronize()
		}
		g.mu.Lock()
		g.finish(due)
		if len(g.waiting) == 0 {
			g.running = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
	}
}

// due returns the number of the first that has not waited long enough for the next
// grace period.
func (g *Grace) due(now time.Time) uint64 {
	n := 0
	for n < len(g.waiting) && now.Sub(g.waiting[n].since) >= graceAge {
		n++
	}
	return g.done + uint64(n)
}

// finish frees those before that number, unless another caller has since.
func (g *Grace) finish(before uint64) {
	for g.done < before && len(g.waiting) > 0 {
		free := g.waiting[0].free
		g.waiting = g.waiting[1:]
		g.done++
		free()
	}
}

// Wait frees all that is waiting, now. It keeps the lock. It reports whether there was anything.
func (g *Grace) Wait() bool {
	n := len(g.waiting)
	if n == 0 {
		return false
	}
	g.Synchronize()
	g.finish(g.done + uint64(n))
	return true
}

// Close drops the waiting functions: the memory is gone.
func (g *Grace) Close() { g.done, g.waiting = g.done+uint64(len(g.waiting)), nil }
