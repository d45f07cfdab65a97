// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// RecipeOfBase returns the recipe of another balancer's base.
func RecipeOfBase(b *lb.Base) Recipe {
	r := Recipe{FullRecipe: FullRecipe{Size: b.Size}, Scheduler: b.Scheduler}
	for _, backend := range b.Backends {
		r.All, r.Shares, r.Absent = append(r.All, backend.Identity), append(r.Shares, backend.Share), append(r.Absent,
			backend.Absent)
		if !backend.Absent {
			r.Owners, r.Weights = append(r.Owners, backend.Endpoint), append(r.Weights, backend.Weight)
		}
	}
	return r
}

// BuildBase checks a recipe that another balancer has sent, and builds its table.
func (r Recipe) BuildBase() (*Table, error) {
	for i, weight := range r.Weights {
		if weight == 0 || weight > math.MaxUint16 || !r.Owners[i].IsValid() {
			return nil, fmt.Errorf("its backend %v has the weight %d: expected is one from 1 to %d",
				r.Owners[i], weight,
				math.MaxUint16)
		}
	}
	if err := CheckMemory([]Recipe{r}, func() memleft.Available { return memleft.Read(os.DirFS("/")) }); err != nil {
		return nil, err
	}
	t, err := r.Build()
	if err == nil && len(t.Slots) == 0 {
		err = errors.New("none of its backends took new flows")
	}
	return t, err
}

// Digest returns a number by which two balancers compare their sets; 0 for no slots.
func (s *SlotSet) Digest() uint64 {
	if s.Empty() {
		return 0
	}
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, s.Size)
	_ = binary.Write(h, binary.BigEndian, s.Bits)
	return h.Sum64()
}
