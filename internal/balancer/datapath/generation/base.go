// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Base returns the base of a service's transition, without its times.
func (r *Record) Base() lb.Base {
	v := &r.View
	b := lb.Base{Service: r.Key, BySource: r.Service.BySource(), Scheduler: r.Service.Scheduler, Beyond: true,
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

// WithBase returns the service's view with another balancer's base, and whether it differs from the present view.
func (r *Record) WithBase(b *lb.Base, now time.Time) (tables.View, bool, error) {
	v := r.View
	if v.Base != nil || r.LacksSlots(b) {
		v.Moved, v.Quiet = tables.AllSlots(uint32(len(v.Table.Slots))), 0
		return v, true, nil
	}
	if len(b.Backends) == 0 {
		if !v.Moved.Empty() || r.Remembers {
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
		// The other balancer has made a change that is yet to come here: packets look up its flows' entries, and
		// without one they use the present table, which is the base.
		if !v.Moved.Empty() || r.Remembers {
			return v, false, nil
		}
		v.Moved, v.Since, v.Quiet = tables.AllSlots(uint32(len(v.Table.Slots))), now, 0
		return v, true, nil
	}
	v.Moved = moved.Union(v.Moved)
	v.Base, v.Since, v.Until, v.Quiet = base, now.Add(-b.Age), now.Add(min(max(b.Left, 0),
		tables.Window(&r.Service))), 0
	return v, true, nil
}

// LacksSlots reports whether another balancer has entries for flows of slots that got another backend there, and not
// here: this one has missed a change that was undone. The message does not name the slots, so packets of all slots look
// up their flow.
func (r *Record) LacksSlots(b *lb.Base) bool {
	v := &r.View
	return b.Beyond && !r.Remembers && !v.Moved.Empty() && v.Moved.Count < int(v.Moved.Size) && b.Moved != 0 &&
		b.Moved != v.Moved.Digest()
}

// WithView returns the change of one service's view.
func (r *Register) WithView(before, after *Record, now time.Time) *Revision {
	c := r.Unchanged(now)
	c.Records, c.services = slices.Clone(r.Records), []serviceChange{{before, after}}
	c.Records[slices.Index(c.Records, before)] = after
	return c
}
