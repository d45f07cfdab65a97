// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowsync"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors of MergeBase.
var (
	// ErrNotHere: the service is not configured here, or its table is computed from other inputs.
	ErrNotHere = errors.New("the service of the base is not configured here so")
	// ErrOwnBase: the service is in a transition of its own here.
	ErrOwnBase = errors.New("the service has a base of its own")
)

// MergeBase gives a service that is in no transition here the base that another balancer has, for as long as that has
// it and no longer than this balancer's own window; where its present table is the same, packets of the service look
// for their flow until none is left. It waits for a change under way. Errors: ErrClosed, ErrNotHere, ErrOwnBase, or why
// there cannot be such a table; then nothing has changed.
func (d *Datapath) MergeBase(b lb.Base) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	was := d.register.ByKey[b.Service]
	if d.current == nil || was == nil || b.Service.Hairpin || was.Service.BySource() != b.BySource ||
		len(was.View.Table.Slots) == 0 {
		return fmt.Errorf("taking the base of %s: %w", b.Service, ErrNotHere)
	}
	if was.View.Base != nil && !was.LacksSlots(&b) {
		return fmt.Errorf("taking the base of %s: %w, since %v", b.Service, ErrOwnBase, was.View.Since)
	}
	after, changed, err := was.WithBase(&b, d.now())
	if err != nil {
		return fmt.Errorf("taking the base of %s: %w", b.Service, err)
	}
	if !changed {
		return nil
	}
	next := *was
	next.View = after
	if !d.publishViews(d.register.WithView(was, &next, d.now())) {
		return fmt.Errorf("taking the base of %s: there is no room for its table: it goes on by its present table",
			b.Service)
	}
	return nil
}

// MergeFlows writes flows that another balancer has proven into the table of proven ones: see flowsync.Merge. It waits
// for
// a change under way; packets do not wait for it. Errors: ErrClosed; before the first Apply all flows are refused as
// unknown.
func (d *Datapath) MergeFlows(flows []lb.Flow) (lb.MergeResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return lb.MergeResult{Refused: map[string]int{}}, ErrClosed
	}
	return flowsync.Merge(d.Exchange, d.flowDestination(), flows), nil
}

// flowDestination returns the tables and the configuration that other balancers' flows are taken into.
func (d *Datapath) flowDestination() flowsync.Destination {
	h := flowsync.Destination{Register: d.register, Shared: d.shared, Secret: d.secret}
	if d.current != nil {
		h.Memory = d.current.Memory
	}
	return h
}
