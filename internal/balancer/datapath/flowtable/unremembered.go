// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"sync/atomic"
)

// Of a service of mode NAT that tracks every flow, a packet from a backend's port is a reply where there is an entry of
// its flow. There may be flows without the entry that they should have: from before the service tracked flows, or the
// balancer was started; that found no room; that were silent for too long. They go by the hash. So for the window of a
// transition after the last sign of such a flow, a packet that the hash allows is a reply, too; and every packet is,
// for as long after a backend has come back that had left lately (is_reply in bpf/balancer/send/replies.h).

// endUnrememberedWindows ends the windows that are over.
func (j *Janitor) endUnrememberedWindows() {
	for id := range min(len(j.Rules.services), len(j.Rules.Turns)) {
		turn := &j.Rules.Turns[id]
		for _, at := range []*uint32{&turn.Unremembered, &turn.CameBack} {
			noted := atomic.LoadUint32(at)
			if noted != 0 && int32(j.clock()-noted) >= int32(j.Rules.services[id].Window) {
				// Not where a packet has just noted another.
				atomic.CompareAndSwapUint32(at, noted, 0)
			}
		}
	}
}
