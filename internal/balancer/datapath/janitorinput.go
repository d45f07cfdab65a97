// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// janitorInput returns the tables and rules that the janitor works with after a change.
func (d *Datapath) janitorInput() flowtable.JanitorInput {
	r := d.register
	return flowtable.JanitorInput{
		Head:      d.current.Memory.Head(),
		Flows:     d.shared.Proven,
		Newcomers: d.shared.Unproven,
		Returns:   d.shared.FullNAT,
		// The janitor reads them while later changes are made.
		Backends: slices.Clone(r.FlowBackends),
		Services: slices.Clone(r.FlowServices),
		Groups:   r.Places.GroupTimeouts(),
		Loads:    mapmem.ElementsOf[objects.XDPBackendLoad](d.shared.Loads.Memory),
		Turns:    mapmem.ElementsOf[objects.XDPTurn](d.shared.Turns.Memory),
		Sockets:  d.sockets.Maps()[objects.LocalMapLocalSockets],
		Own:      d.current.Memory.OwnNumbers(),
	}
}
