// SPDX-License-Identifier: Apache-2.0

package datapath

import "time"

// endTransitions ends what need not go on of the transitions, after a full round of
// the janitor that found so many flows of each service, by its id.
func (d *Datapath) endTransitions(now time.Time, flowsOf map[uint32]uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.current == nil {
		return
	}
	d.register.places.releaseIDs(flowsOf)
	if c := d.register.endTransitions(now, flowsOf); c != nil {
		// Without room, the transitions go on until the next round, or the next change.
		d.publishViews(c)
	}
}

// publishViews shows a change of services' views alone. It returns false, and has changed nothing, where
// there is no room; the caller holds the lock.
func (d *Datapath) publishViews(c *revision) bool {
	p := d.current.memory.prepare(c)
	if p == nil && d.current.memory.later.Wait() {
		p = d.current.memory.prepare(c)
	}
	if p == nil {
		return false
	}
	d.writeSnapshot(c, d.current.ports)
	d.keeper.show(d.current.memory)
	p.publish()
	d.register.commit(c)
	d.publishPicture()
	d.keeper.removeOld(d.current)
	return true
}

// endTransitions returns the change that ends transitions, nil where there is nothing to do.
func (r *register) endTransitions(now time.Time, flowsOf map[uint32]uint64) *revision {
	c := &revision{state: r.state, places: r.places.beginChange(now)}
	for i, was := range r.records {
		if !was.view.InTransition() {
			continue
		}
		after, changed := was.view.Settled(now, was.remembers, flowsOf[was.id])
		if !changed {
			continue
		}
		if c.records == nil {
			c.records = append(c.records, r.records...)
		}
		is := *was
		is.view = after
		c.records[i] = &is
		c.services = append(c.services, served{was, &is})
	}
	if c.services == nil {
		return nil
	}
	c.places.free = r.places.free
	return c
}
