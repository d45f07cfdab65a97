// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// Saved returns the recipe of a table for a snapshot, nil for none.
func (t *Table) Saved() *snapshot.Recipe {
	if t == nil {
		return nil
	}
	r := &snapshot.Recipe{Scheduler: t.Scheduler, Size: t.Size, All: t.All, Shares: t.Shares, Owners: t.Owners,
		Weights: t.Weights}
	for i, absent := range t.Absent {
		if absent {
			r.Absent = append(r.Absent, i)
		}
	}
	return r
}

// RestoreRecipe is the inverse of Saved.
func RestoreRecipe(saved *snapshot.Recipe) Recipe {
	r := Recipe{FullRecipe: FullRecipe{Size: saved.Size, All: saved.All, Shares: saved.Shares},
		Scheduler: saved.Scheduler,
		Owners:    saved.Owners, Weights: saved.Weights, Absent: make([]bool, len(saved.All))}
	for _, at := range saved.Absent {
		r.Absent[at] = true
	}
	return r
}
