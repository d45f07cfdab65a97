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

// MergeBase gives a service that is in no transition here another balancer's base, for as long as that balancer keeps
// the base, and at most for this balancer's own window. Where the present table equals the base, packets of the service
// look up their flow until no flow is left. MergeBase waits for a change under way. Errors: ErrClosed, ErrNotHere,
// ErrOwnBase, or why such a table cannot be built; then nothing has changed.
func (d *Datapath) MergeBase(b lb.Base) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	current := d.register.ByKey[b.Service]
	if d.current == nil || current == nil || b.Service.Hairpin || current.Service.BySource() != b.BySource ||
		len(current.View.Table.Slots) == 0 {
		return fmt.Errorf("taking the base of %s: %w", b.Service, ErrNotHere)
	}
	if current.View.Base != nil && !current.LacksSlots(&b) {
		return fmt.Errorf("taking the base of %s: %w, since %v", b.Service, ErrOwnBase, current.View.Since)
	}
	after, changed, err := current.WithBase(&b, d.now())
	if err != nil {
		return fmt.Errorf("taking the base of %s: %w", b.Service, err)
	}
	if !changed {
		return nil
	}
	next := *current
	next.View = after
	if !d.publishViews(d.register.WithView(current, &next, d.now())) {
		return fmt.Errorf("taking the base of %s: there is no room for its table: it goes on by its present table",
			b.Service)
	}
	return nil
}

// MergeFlows writes another balancer's proven flows into the table of proven flows: see flowsync.Merge. It waits for a
// change under way; packets do not wait for it. Errors: ErrClosed; before the first Apply all flows are refused as
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
