// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
)

// runJanitor runs the janitor's steps until the datapath is closed. It does not wait for the datapath's lock: flows
// expire while a configuration is compiled.
func (d *Datapath) runJanitor() {
	rounds := make(chan struct{}, 1)
	go d.handleRounds(rounds)
	ticker := time.NewTicker(flowtable.StepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-ticker.C:
		}
		if d.janitor.Step(flowtable.Monotonic()) {
			select {
			case rounds <- struct{}{}:
			default: // a pending notification covers this one
			}
		}
	}
}

// handleRounds does the work that is due after each round of the janitor.
func (d *Datapath) handleRounds(rounds <-chan struct{}) {
	for {
		select {
		case <-d.stop:
			return
		case <-rounds:
			d.endTransitions(d.now(), d.janitor.FlowsOf())
			d.notifyFlowsCounted()
			d.endStrandedSockets()
		}
	}
}

// endStrandedSockets ends UDP sockets whose backends take no packets any more.
func (d *Datapath) endStrandedSockets() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.sockets.EndStranded()
	}
}

// Tick moves the clock that packets see to the present, for a data plane that is not attached and has no janitor.
func (d *Datapath) Tick() { d.janitor.Tick() }
