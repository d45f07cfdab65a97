// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// flowLimit returns the number of proven flows to allocate room for.
func (d *Datapath) flowLimit(c *generation.Revision) uint32 {
	switch {
	case d.options.FlowLimit != 0:
		return d.options.FlowLimit
	case c.Remembers:
		return lb.DefaultFlowLimit
	}
	return lb.DefaultPinLimit
}

// requestedHook returns the hook that a state asks for.
func (d *Datapath) requestedHook(state lb.State) lb.Hook {
	return cmp.Or(state.Hook, d.hook, d.options.Hook)
}

// planMemory returns the kernel memory that a change needs, and refuses one that would not fit into the memory that is
// left.
func (d *Datapath) planMemory(c *generation.Revision) error {
	capacity, err := generation.CapacityFor(c)
	if err != nil {
		return err
	}
	sizes := d.sizesToAllocate(c)
	plan, err := sharedmaps.PlanFor(sizes, uint64(capacity.Bytes()))
	if err != nil {
		return err
	}
	d.putFlowLimits(&plan, sizes, c)
	return sharedmaps.CheckPlan(sharedmaps.PlanWithout(plan, sizes, d.shared), memleft.Read(os.DirFS("/")))
}

// noteMemory notes the memory plan after a change.
func (d *Datapath) noteMemory(c *generation.Revision) {
	current := sharedmaps.SizesOf(d.shared)
	plan, err := sharedmaps.PlanFor(current, uint64(len(d.current.Memory.Storage)*8))
	if err != nil {
		return // planMemory would have failed before
	}
	d.putFlowLimits(&plan, current, c)
	plan.Checks = d.checks.Plan().Checks
	d.plan = plan
}

// putFlowLimits puts the configured limits of flows into a plan, where the tables were allocated for just those: tables
// have complete buckets, and never shrink.
func (d *Datapath) putFlowLimits(plan *lb.MemoryPlan, sizes sharedmaps.Sizes, c *generation.Revision) {
	if limit := d.flowLimit(c); flowtable.BucketsFor(limit) == sizes.Flows {
		plan.ProvenLimit = limit
	}
	if limit := d.options.UnprovenLimit; flowtable.BucketsFor(limit) == sizes.Newcomers {
		plan.UnprovenLimit = limit
	}
}

// makeMemory creates the map of a generation, and writes a configuration into it. It returns the services' placements,
// in the order of the change's records.
func (d *Datapath) makeMemory(c *generation.Revision, shared *sharedmaps.Maps) (
	*generation.Memory, []generation.Placement, error,
) {
	plan, err := generation.CapacityFor(c)
	if err != nil {
		return nil, nil, err
	}
	spec, err := loader.XDP.Load()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	mapSpec := spec.Maps[objects.GenerationSection].Copy()
	mapSpec.Name, mapSpec.ValueSize, mapSpec.Flags = "generation", plan.Bytes(), unix.BPF_F_MMAPABLE
	// Those describe the few bytes that the object file has in its place.
	mapSpec.Contents, mapSpec.Key, mapSpec.Value = nil, nil, nil
	created, err := d.kernel.NewMap(mapSpec)
	if err != nil {
		return nil, nil, attach.LoadError(
			fmt.Errorf("making the map of the configuration with %d bytes: %w", mapSpec.ValueSize, err))
	}
	m, placements, err := generation.FillMap(created, &plan, c, &d.mu)
	if err != nil {
		return nil, nil, err
	}
	m.Head().Clock = d.janitor.Now()
	c.StoreHead(m.Head())
	m.Head().Standby = d.standby
	m.Head().OrphanTimeout = flowtable.Milliseconds(d.options.Orphan)
	m.Constants.TooBigRate = d.options.TooBigRate
	m.Constants.FlowBuckets = shared.Flows.MaxEntries()
	m.Constants.NewcomerBuckets = shared.Newcomers.MaxEntries()
	m.Constants.ReturnBuckets = shared.Returns.MaxEntries()
	m.Constants.FlowSecret = d.secret
	return m, placements, nil
}

// sizesToAllocate returns the sizes of shared maps for a change: with room to grow where those in use are too small.
func (d *Datapath) sizesToAllocate(c *generation.Revision) sharedmaps.Sizes {
	sizes := d.sizesFor(c)
	if !sizes.Within(d.shared) {
		sizes.Backends, sizes.Services = generation.RoomyCount(sizes.Backends), generation.RoomyCount(sizes.Services)
	}
	return sizes
}

// sizesFor returns the sizes that the shared maps must have at least.
func (d *Datapath) sizesFor(c *generation.Revision) sharedmaps.Sizes {
	sizes := sharedmaps.Sizes{Backends: max(c.Places.Indices, 1), Services: max(c.Places.IDs, 1),
		Returns: 1, RouteCache: 1, Flows: flowtable.BucketsFor(d.flowLimit(c)),
		Newcomers: flowtable.BucketsFor(d.options.UnprovenLimit)}
	if c.Modes&(1<<objects.XDPModeMODE_FULLNAT) != 0 {
		sizes.Returns = flowtable.ReturnBucketsFor(uint64(d.flowLimit(c)) + uint64(d.options.UnprovenLimit))
	}
	if c.NeededModes()&(1<<objects.XDPModeMODE_NAT|1<<objects.XDPModeMODE_FULLNAT) != 0 {
		sizes.RouteCache = uint32(objects.XDPRouteCacheROUTE_CACHE_ENTRIES)
	}
	return sizes
}
