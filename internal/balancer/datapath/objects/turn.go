// SPDX-License-Identifier: Apache-2.0

package objects

import "sync/atomic"

// LowerMinimum lowers the cached least number of active flows of the service's backends to active, if it is higher.
func (t *XDPTurn) LowerMinimum(active uint32) {
	if active < atomic.LoadUint32(&t.Fewest) {
		atomic.StoreUint32(&t.Fewest, active)
	}
}

// NoteUnremembered records that the service may have flows without an entry, at a time of the data plane's clock in
// milliseconds.
func (t *XDPTurn) NoteUnremembered(clock uint32) { atomic.StoreUint32(&t.Unremembered, clock|1) }

// NoteReturn records that a removed backend was added again, at a time of the data plane's clock in milliseconds.
func (t *XDPTurn) NoteReturn(clock uint32) { atomic.StoreUint32(&t.CameBack, clock|1) }
