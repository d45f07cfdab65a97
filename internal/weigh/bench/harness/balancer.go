// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Room is the capacity of a balancer's tables.
type Room struct {
	// Flows is the number of proven flows, Unproven that of unproven ones; 0 means the default.
	Flows, Unproven uint32
}

// NewBalancer returns a balancer for BPF_PROG_TEST_RUN, without a configuration. It expires no flows by itself.
func NewBalancer(hook lb.Hook, room Room) *datapath.Datapath {
	return datapath.NewDetached(datapath.Options{
		Hook: hook, FlowLimit: room.Flows, UnprovenLimit: room.Unproven,
	}, OwnMAC)
}
