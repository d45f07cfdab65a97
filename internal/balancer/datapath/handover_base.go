// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors of TakeBase.
var (
	// ErrNotHere: the service is not configured here, or computes from other things.
	ErrNotHere = errors.New("the service of the base is not configured here so")
	// ErrOwnBase: the service is in a transition of its own here.
	ErrOwnBase = errors.New("the service has a base of its own")
)

// Bases returns what services go by that are in a transition, for balancers that have not seen its beginning. It does not
// wait for a change under way. Errors: ErrClosed.
func (d *Datapath) Bases() (bases []lb.Base, err error) {
	now, h := d.now(), &d.handed
	h.mu.Lock()
	defer h.mu.Unlock()
	err = d.read(func(p *picture) error {
		// Records are not changed, and to compare tables takes time: each is looked at once.
		made := map[*record]lb.Base{}
		for _, r := range p.records {
			if !r.view.inTransition() || r.service.IsHairpin || len(r.view.table.slots) == 0 {
				continue
			}
			b, known := h.bases[r]
			if !known {
				b = r.base()
			}
			made[r] = b
			b.Age, b.Left = max(now.Sub(r.view.since), 0), max(r.view.until.Sub(now), 0)
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
	b := lb.Base{Service: r.key, BySource: r.service.BySource(), Scheduler: r.service.Scheduler, Beyond: true, Moved: v.moved.digest()}
	if v.base == nil || len(v.base.slots) == 0 {
		return b
	}
	from := &v.base.recipe
	b.Size, b.Scheduler, b.Backends = from.size, from.scheduler, make([]lb.BaseBackend, len(from.all))
	member := 0
	for i := range from.all {
		b.Backends[i] = lb.BaseBackend{Identity: from.all[i], Share: from.shares[i], Absent: from.absent[i]}
		if !from.absent[i] {
			b.Backends[i].Endpoint, b.Backends[i].Weight = from.owners[member], from.weights[member]
			member++
		}
	}
	b.Beyond = !v.moved.empty() && v.moved.count > differing(v.base, v.table).count
	return b
}

// recipeOfBase says of what to make the table of a base.
func recipeOfBase(b *lb.Base) recipe {
	r := recipe{fullRecipe: fullRecipe{size: b.Size}, scheduler: b.Scheduler}
	for _, backend := range b.Backends {
		r.all, r.shares, r.absent = append(r.all, backend.Identity), append(r.shares, backend.Share), append(r.absent, backend.Absent)
		if !backend.Absent {
			r.owners, r.weights = append(r.owners, backend.Endpoint), append(r.weights, backend.Weight)
		}
	}
	return r
}

// buildBase makes the table, of what another balancer has told.
func (r recipe) buildBase() (*table, error) {
	for i, weight := range r.weights {
		if weight == 0 || weight > math.MaxUint16 || !r.owners[i].IsValid() {
			return nil, fmt.Errorf("its backend %v has the weight %d: expected is one from 1 to %d", r.owners[i], weight, math.MaxUint16)
		}
	}
	if err := checkTables([]recipe{r}, func() memoryLeft { return readMemoryLeft(os.DirFS("/")) }); err != nil {
		return nil, err
	}
	t, err := r.build()
	if err == nil && len(t.slots) == 0 {
		err = errors.New("none of its backends took new flows")
	}
	return t, err
}

// TakeBase has a service that is in no transition here go by the base that another balancer has, for as long as it is to be
// there and no longer than this balancer's own window; where its present table is the same, packets of the service look for their flow
// until none is left. It waits for a
// change under way. Errors: ErrClosed, ErrNotHere, ErrOwnBase, or why there cannot be such a table; then nothing has changed.
func (d *Datapath) TakeBase(b lb.Base) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	was := d.register.byKey[b.Service]
	if d.current == nil || was == nil || b.Service.Hairpin || was.service.BySource() != b.BySource || len(was.view.table.slots) == 0 {
		return fmt.Errorf("taking the base of %s: %w", b.Service, ErrNotHere)
	}
	if was.view.base != nil && !was.lacksSlots(&b) {
		return fmt.Errorf("taking the base of %s: %w, since %v", b.Service, ErrOwnBase, was.view.since)
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
		return fmt.Errorf("taking the base of %s: there is no room for its table: it goes on by its present table", b.Service)
	}
	return nil
}

// withBase returns the service's view with another balancer's base, and whether that says anything.
func (r *record) withBase(b *lb.Base, now time.Time) (view, bool, error) {
	v := r.view
	if v.base != nil || r.lacksSlots(b) {
		v.moved, v.quiet = allSlots(uint32(len(v.table.slots))), 0
		return v, true, nil
	}
	if len(b.Backends) == 0 {
		if !v.moved.empty() || r.remembers {
			return v, false, nil
		}
		v.moved, v.since, v.quiet = allSlots(uint32(len(v.table.slots))), now.Add(-b.Age), 0
		return v, true, nil
	}
	recipe := recipeOfBase(b)
	base := v.find(&recipe)
	if base == nil {
		var err error
		if base, err = recipe.buildBase(); err != nil {
			return v, false, err
		}
	}
	moved := differing(base, v.table)
	if b.Beyond {
		moved = allSlots(uint32(len(v.table.slots)))
	}
	if moved.empty() {
		// The other balancer is ahead by a change that is yet to come here: its flows are looked for, and what is
		// not remembered goes by the present table, which is the base.
		if !v.moved.empty() || r.remembers {
			return v, false, nil
		}
		v.moved, v.since, v.quiet = allSlots(uint32(len(v.table.slots))), now, 0
		return v, true, nil
	}
	v.moved = moved.and(v.moved)
	v.base, v.since, v.until, v.quiet = base, now.Add(-b.Age), now.Add(min(max(b.Left, 0), windowOf(&r.service))), 0
	return v, true, nil
}

// lacksSlots says whether another balancer remembers flows of slots that have changed hands there, and not here: this one has missed a change that was
// taken back. Which they are is not told, so that packets of all slots look for their flow.
func (r *record) lacksSlots(b *lb.Base) bool {
	v := &r.view
	return b.Beyond && !r.remembers && !v.moved.empty() && v.moved.count < int(v.moved.size) && b.Moved != 0 && b.Moved != v.moved.digest()
}

// digest is 0 for no slots.
func (s *slotSet) digest() uint64 {
	if s.empty() {
		return 0
	}
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, s.size)
	_ = binary.Write(h, binary.BigEndian, s.bits)
	return h.Sum64()
}

// withView returns the change of one service's view.
func (r *register) withView(was, is *record, now time.Time) *revision {
	c := &revision{state: r.state, records: slices.Clone(r.records), places: r.places.resettle(now), services: []served{{was, is}}}
	c.records[slices.Index(c.records, was)] = is
	c.places.free = r.places.free
	return c
}
