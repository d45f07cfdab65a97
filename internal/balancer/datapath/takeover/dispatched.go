// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
)

// listDispatched lists our programs in libxdp's dispatchers on interfaces: programs of our sets, and those that passed
// packets in place of them when a process was killed. It removes the pins of a dispatcher that the killed process has
// not attached, because the next change may not affect that interface.
func (f *Found) listDispatched(sets []uint64, ports []attach.Port) error {
	ids, err := keeper.ProgramsOf(f.Store, sets)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, p := range ports {
		// Pins that cannot be removed only cost memory, and the next process retries that.
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
