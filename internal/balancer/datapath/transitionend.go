// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
)

// endTransitions ends transitions, or parts of them, after a full round of the janitor. flowsOf is the number of flows
// that the round found, by the id of the service.
func (d *Datapath) endTransitions(now time.Time, flowsOf map[uint32]uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.current == nil {
		return
	}
	d.register.Places.FreeIDs(flowsOf, d.janitor.SocketsOf())
	if c := d.register.EndTransitions(now, flowsOf); c != nil {
		// Without room, the transitions go on until the next round, or the next change.
		d.publishViews(c)
	}
}

// publishViews publishes a change that differs in services' views only. It returns false, and has changed nothing,
// where there is no room; the caller holds the lock.
func (d *Datapath) publishViews(c *generation.Revision) bool {
	p := d.current.Memory.PrepareOrWait(c)
	if p == nil {
		return false
	}
	d.writeSnapshot(c, d.current.Ports)
	d.keeper.WriteNumber(d.current.Memory)
	p.Publish()
	d.register.Commit(c)
	d.publishView()
	d.keeper.RemoveOld(d.current)
	return true
}
