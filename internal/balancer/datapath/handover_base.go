// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
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
	err = d.read(func(p *picture) error {
		// Records are not changed, and to compare tables takes time: each is looked at once.
		made := map[*record]lb.Base{}
		for _, r := range p.records {
			if !r.view.InTransition() || r.service.IsHairpin || len(r.view.Table.Slots) == 0 {
				continue
			}
			b, known := h.bases[r]
			if !known {
				b = r.base()
			}
			made[r] = b
			b.Age, b.Left = max(now.Sub(r.view.Since), 0), max(r.view.Until.Sub(now), 0)
			bases = append(bases, b)
		}
		h.bases = made
		return nil
	})
	return bases, err
}

// base says what the service's is, but for times.
func (r *record) base() lb.Base {
	v := &r.view
	b := lb.Base{Service: r.key, BySource: r.service.BySource(), Scheduler: r.service.Scheduler, Beyond: true,
		Moved: v.Moved.Digest()}
	if v.Base == nil || len(v.Base.Slots) == 0 {
		return b
	}
	from := &v.Base.Recipe
	b.Size, b.Scheduler, b.Backends = from.Size, from.Scheduler, make([]lb.BaseBackend, len(from.All))
	member := 0
	for i := range from.All {
		b.Backends[i] = lb.BaseBackend{Identity: from.All[i], Share: from.Shares[i], Absent: from.Absent[i]}
		if !from.Absent[i] {
			b.Backends[i].Endpoint, b.Backends[i].Weight = from.Owners[member], from.Weights[member]
			member++
		}
	}
	b.Beyond = !v.Moved.Empty() && v.Moved.Count > tables.Differing(v.Base, v.Table).Count
	return b
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
	was := d.register.byKey[b.Service]
	if d.current == nil || was == nil || b.Service.Hairpin || was.service.BySource() != b.BySource ||
		len(was.view.Table.Slots) == 0 {
		return fmt.Errorf("taking the base of %s: %w", b.Service, ErrNotHere)
	}
	if was.view.Base != nil && !was.lacksSlots(&b) {
		return fmt.Errorf("taking the base of %s: %w, since %v", b.Service, ErrOwnBase, was.view.Since)
	}
	after, changed, err := was.withBase(&b, d.now())
	if err != nil {
		return fmt.Errorf("taking the base of %s: %w", b.Service, err)
	}
	if !changed {
		return nil
	}
	is := *was
	is.view = after
	if !d.publishViews(d.register.withView(was, &is, d.now())) {
		return fmt.Errorf("taking the base of %s: there is no room for its table: it goes on by its present table",
			b.Service)
	}
	return nil
}

// withBase returns the service's view with another balancer's base, and whether that says anything.
func (r *record) withBase(b *lb.Base, now time.Time) (tables.View, bool, error) {
	v := r.view
	if v.Base != nil || r.lacksSlots(b) {
		v.Moved, v.Quiet = tables.AllSlots(uint32(len(v.Table.Slots))), 0
		return v, true, nil
	}
	if len(b.Backends) == 0 {
		if !v.Moved.Empty() || r.remembers {
			return v, false, nil
		}
		v.Moved, v.Since, v.Quiet = tables.AllSlots(uint32(len(v.Table.Slots))), now.Add(-b.Age), 0
		return v, true, nil
	}
	recipe := tables.RecipeOfBase(b)
	base := v.Find(&recipe)
	if base == nil {
		var err error
		if base, err = recipe.BuildBase(); err != nil {
			return v, false, err
		}
	}
	moved := tables.Differing(base, v.Table)
	if b.Beyond {
		moved = tables.AllSlots(uint32(len(v.Table.Slots)))
	}
	if moved.Empty() {
		// The other balancer is ahead by a change that is yet to come here: its flows are looked for, and what is
		// not remembered goes by the present table, which is the base.
		if !v.Moved.Empty() || r.remembers {
			return v, false, nil
		}
		v.Moved, v.Since, v.Quiet = tables.AllSlots(uint32(len(v.Table.Slots))), now, 0
		return v, true, nil
	}
	v.Moved = moved.Union(v.Moved)
	v.Base, v.Since, v.Until, v.Quiet = base, now.Add(-b.Age), now.Add(min(max(b.Left, 0),
		tables.Window(&r.service))), 0
	return v, true, nil
}

// lacksSlots says whether another balancer remembers flows of slots that have changed hands there, and not here: this
// one has missed a change that was taken back. Which they are is not told, so that packets of all slots look for their
// flow.
func (r *record) lacksSlots(b *lb.Base) bool {
	v := &r.view
	return b.Beyond && !r.remembers && !v.Moved.Empty() && v.Moved.Count < int(v.Moved.Size) && b.Moved != 0 &&
		b.Moved != v.Moved.Digest()
}

// withView returns the change of one service's view.
func (r *register) withView(was, is *record, now time.Time) *revision {
	c := &revision{state: r.state, records: slices.Clone(r.records), places: r.places.beginChange(now),
		services: []served{{was, is}}}
	c.records[slices.Index(c.records, was)] = is
	c.places.free = r.places.free
	return c
}
