// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"sync/atomic"
)

// In mode NAT, where a service tracks every flow, a packet from a backend's port is a reply if its flow has an entry.
// Flows may lack their entry: those from before the service tracked flows or the balancer was started, those without
// room in the table, and those that were idle for too long. They are balanced by the hash. So for the window of a
// transition after the last sign of such a flow, a packet whose hash selects the backend is a reply, too; and for the
// same time after a recently removed backend has returned, every packet from it is (is_reply in
// bpf/balancer/send/replies.h).

// endUnrememberedWindows ends the windows that are over.
func (j *Janitor) endUnrememberedWindows() {
	for id := range min(len(j.Rules.services), len(j.Rules.Turns)) {
		turn := &j.Rules.Turns[id]
		for _, at := range []*uint32{&turn.Unremembered, &turn.CameBack} {
			noted := atomic.LoadUint32(at)
			if noted != 0 && int32(j.clock()-noted) >= int32(j.Rules.services[id].Window) {
				// Unless a packet has just recorded a later sign.
				atomic.CompareAndSwapUint32(at, noted, 0)
			}
		}
	}
}
