// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
)

// listDispatched looks for our programs in libxdp's dispatchers on interfaces: a program of one of our sets, or one
// that stood in for it when a process was killed. Pins of a dispatcher that the killed process did not come to attach
// are removed: the next change need not be of that interface.
func (f *Found) listDispatched(sets []uint64, ports []attach.Port) error {
	ids, err := keeper.ProgramsOf(f.Store, sets)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, p := range ports {
		// Pins elsewhere that cannot be removed cost memory only, and are tried again by the next process.
		if err := libxdp.Sweep(p.Index, ids...); errors.Is(err, libxdp.ErrLocked) {
			return err
		}
		all, generic, err := libxdp.Components(p.Index)
		if errors.Is(err, libxdp.ErrLocked) {
			return err
		}
		for _, c := range all {
			if err != nil || !attach.AnyOf(ids)(c) {
				continue
			}
			h, w, err := attach.OpenDispatched(p, generic, c.ID, ids)
			if err != nil {
				return err
			}
			f.attached = append(f.attached, attached{attach.Leftover{Hold: h, Method: w, Index: p.Index}, c.ID})
		}
	}
	return nil
}
