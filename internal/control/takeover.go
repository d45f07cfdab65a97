// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/jeoul/jeoul/internal/clock"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/ops"
)

// Memory keeps what operations have changed for the process that follows this one.
type Memory interface {
	// Load returns what was saved last; nothing where nothing was.
	Load() ([]byte, error)
	Save([]byte) error
}

// savedOverlay is an overlay as it is saved. Its times are those of the wall clock of Clock.
type savedOverlay struct {
	Backend lb.BackendKey `json:"backend"`
	Drain   *ops.Drained  `json:"drain,omitempty"`
	Weight  *ops.Weighted `json:"weight,omitempty"`
	Forced  *ops.Forced   `json:"forced,omitempty"`
	Clock   clock.Reading `json:"clock,omitzero"`
}

// at returns the overlay with other times: those of a file, or those of this process.
func (o overlay) at(other func(time.Time) time.Time) overlay {
	if o.drain != nil {
		drain := *o.drain
		drain.At, drain.Deadline = other(drain.At), other(drain.Deadline)
		o.drain = &drain
	}
	if o.weight != nil {
		weight := *o.weight
		weight.At = other(weight.At)
		o.weight = &weight
	}
	if o.forced != nil {
		o.forced = &ops.Forced{By: o.forced.By, At: other(o.forced.At)}
	}
	return o
}

// awaitPaths waits, within a bound, until the backends of a configuration are looked for, where what arrives at
// once may have begun before this process: a data plane forwards already and goes on with what it knows until then,
// or other balancers have the VIPs too. Without its whole table from the first packet on, a balancer beside others
// would begin a transition with each backend that it finds, and take flows of theirs for older than that.
func (c *Controller) awaitPaths(l *layout) {
	if !c.opt.TakesOver && !l.besideOthers() {
		return
	}
	all := &reload{wanted: l.watched}
	bound := time.NewTimer(resolveBound)
	defer bound.Stop()
	for !c.resolved(all) {
		select {
		case <-c.opt.Paths.Changes():
		case <-bound.C:
			return
		}
	}
}

// besideOthers says whether other balancers may have the VIPs, too.
func (l *layout) besideOthers() bool {
	return l.cfg.BGP.On() || l.cfg.VRRP.ID != 0 || l.cfg.Members.Listen.IsValid()
}

// recall returns what operations had changed when the process before ended, as far as the
// configuration has the backends.
func (c *Controller) recall(l *layout) (map[lb.BackendKey]overlay, error) {
	if !c.opt.TakesOver || c.opt.Memory == nil {
		return nil, nil
	}
	data, err := c.opt.Memory.Load()
	if err != nil || len(data) == 0 {
		return nil, err
	}
	var saved []savedOverlay
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, fmt.Errorf("read what operations had changed of backends: %w", err)
	}
	overlays, now := map[lb.BackendKey]overlay{}, c.opt.Clock()
	for _, s := range saved {
		if l.find(s.Backend) != nil {
			lay(overlays, s.Backend, overlay{drain: s.Drain, weight: s.Weight, forced: s.Forced}.at(func(t time.Time) time.Time { return s.Clock.Told(t, now) }))
		}
	}
	return overlays, nil
}

// remind saves what operations have changed, where a view has other operations than the last.
// Where it cannot be saved, it is in force all the same.
func (c *Controller) remind(now *view) {
	if c.opt.Memory == nil || maps.Equal(c.view.overlays, now.overlays) {
		return
	}
	saved, clock := make([]savedOverlay, 0, len(now.overlays)), c.opt.Clock()
	for key, o := range now.overlays {
		o = o.at(clock.Written)
		saved = append(saved, savedOverlay{key, o.drain, o.weight, o.forced, clock})
	}
	data, err := json.Marshal(saved)
	if err == nil {
		err = c.opt.Memory.Save(data)
	}
	if err != nil {
		c.opt.Log.Warn(fmt.Sprintf("saving what operations have changed of backends (it ends with this process): %s", oneLine(err)))
	}
}

// dropAddresses takes away what the process before had put on its first interface and the
// balancer is to hold no more, or on another one.
func (c *Controller) dropAddresses(first *view) {
	if !c.opt.TakesOver {
		return
	}
	if err := c.opt.Host.KeepAddresses(c.links[0].Name, first.addressesHeld()); err != nil {
		c.opt.Log.Warn(oneLine(err))
	}
	c.logHost()
}
