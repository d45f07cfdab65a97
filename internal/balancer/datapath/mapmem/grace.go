// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
)

// Memory that packets may still be reading must not be written. A program that processes a packet is an RCU reader:
// after a grace period, no reader from before its begin is left, and memory that was unreachable at its begin can be
// reused.

// graceAge is for how long memory is idle before the wait for a grace period: so memory that several changes free needs
// only one wait.
const graceAge = 20 * time.Millisecond

// Grace has the functions to call once no packet reads memory that was in use.
type Grace struct {
	// mu is the lock of the datapath: it guards the Grace, and the memory that the waiting functions access.
	mu      *sync.Mutex
	waiting []idle
	// done counts the functions that were called; the first waiting one has the number done.
	done uint64
	// running says that a goroutine is waiting in the background.
	running bool
	// Synchronize waits for a grace period.
	Synchronize func()
}

// idle is memory that is unused since a time, and the function that frees it.
type idle struct {
	since time.Time
	free  func()
}

// NewGrace returns a Grace that calls its functions with the lock mu held.
func NewGrace(mu *sync.Mutex) *Grace { return &Grace{mu: mu, Synchronize: rcu.Wait} }

// NewManualGrace returns a Grace for memory that no program reads: only Wait frees waiting memory.
func NewManualGrace() *Grace { return &Grace{mu: &sync.Mutex{}, running: true, Synchronize: func() {}} }

// AfterGrace calls free after a grace period, with the lock held. The caller holds it.
func (g *Grace) AfterGrace(free func()) {
	g.waiting = append(g.waiting, idle{time.Now(), free})
	if !g.running {
		g.running = true
		go g.run()
	}
}

// run frees idle memory until there is none.
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

// due returns the number of the first function that has not waited for graceAge.
func (g *Grace) due(now time.Time) uint64 {
	n := 0
	for n < len(g.waiting) && now.Sub(g.waiting[n].since) >= graceAge {
		n++
	}
	return g.done + uint64(n)
}

// finish calls the functions before that number, unless another caller has.
func (g *Grace) finish(before uint64) {
	for g.done < before && len(g.waiting) > 0 {
		free := g.waiting[0].free
		g.waiting = g.waiting[1:]
		g.done++
		free()
	}
}

// Wait waits for a grace period and frees all waiting memory, with the lock held. It reports whether there was any.
func (g *Grace) Wait() bool {
	n := len(g.waiting)
	if n == 0 {
		return false
	}
	g.Synchronize()
	g.finish(g.done + uint64(n))
	return true
}

// Close drops the waiting functions, because the memory is being closed.
func (g *Grace) Close() { g.done, g.waiting = g.done+uint64(len(g.waiting)), nil }
