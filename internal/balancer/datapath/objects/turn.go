// SPDX-License-Identifier: Apache-2.0

package objects

import "sync/atomic"

// LowerMinimum lowers the least number of a backend's flows to this, if it is above it: a backend of the service has so
// few left.
func (t *XDPTurn) LowerMinimum(active uint32) {
	if active < atomic.LoadUint32(&t.Fewest) {
		atomic.StoreUint32(&t.Fewest, active)
	}
}

// NoteUnremembered notes that at a time of the data plane's clock, in milliseconds, the service may have flows that are
// not remembered.
func (t *XDPTurn) NoteUnremembered(clock uint32) { atomic.StoreUint32(&t.Unremembered, clock|1) }

// NoteReturn notes that at a time of the data plane's clock, in milliseconds, a backend is there again.
func (t *XDPTurn) NoteReturn(clock uint32) { atomic.StoreUint32(&t.CameBack, clock|1) }
