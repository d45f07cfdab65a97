// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/picture"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors of TakeBase.
var (
	// ErrNotHere: the service is not configured here, or computes from other things.
	ErrNotHere = errors.New("the service of the base is not configured here so")
	// ErrOwnBase: the service is in a transition of its own here.
	ErrOwnBase = errors.New("the service has a base of its own")
)

// Bases returns what services go by that are in a transition, for balancers that have not seen its beginning. It does
// not wait for a change under way. Errors: ErrClosed.
func (d *Datapath) Bases() (bases []lb.Base, err error) {
	now, h := d.now(), &d.handed
	h.mu.Lock()
	defer h.mu.Unlock()
	err = d.shown.Read(func(p *picture.Picture) error {
		// Records are not changed, and to compare tables takes time: each is looked at once.
		made := map[*generation.Record]lb.Base{}
		for _, r := range p.Records {
			if !r.View.InTransition() || r.Service.IsHairpin || len(r.View.Table.Slots) == 0 {
				continue
			}
			b, known := h.bases[r]
			if !known {
				b = r.Base()
			}
			made[r] = b
			b.Age, b.Left = max(now.Sub(r.View.Since), 0), max(r.View.Until.Sub(now), 0)
			bases = append(bases, b)
		}
		h.bases = made
		return nil
	})
	return bases, err
}

// TakeBase has a service that is in no transition here go by the base that another balancer has, for as long as it is
// to be there and no longer than this balancer's own window; where its present table is the same, packets of the
// service look for their flow until none is left. It waits for a
// change under way. Errors: ErrClosed, ErrNotHere, ErrOwnBase, or why there cannot be such a table; then nothing has
// changed.
func (d *Datapath) TakeBase(b lb.Base) error {
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
	is := *was
	is.View = after
	if !d.publishViews(d.register.WithView(was, &is, d.now())) {
		return fmt.Errorf("taking the base of %s: there is no room for its table: it goes on by its present table",
			b.Service)
	}
	return nil
}
