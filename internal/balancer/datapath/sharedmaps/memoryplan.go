// SPDX-License-Identifier: Apache-2.0

package sharedmaps

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

const (
	returnBucketSize = int(unsafe.Sizeof(objects.XDPReturnBucket{}))
	// The bytes that the kernel allocates for each element, and for each bucket, of an LRU hash map
	// (struct htab_elem and struct bucket in kernel/bpf/hashtab.c).
	hashElement, hashBucket = 48, 16
)

// PlanFor returns the kernel memory of maps of these sizes, with that many bytes of configuration.
func PlanFor(sizes Sizes, configuration uint64) (lb.MemoryPlan, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return lb.MemoryPlan{}, fmt.Errorf("counting the CPUs: %v", err)
	}
	spec, err := objects.XDP.Spec()
	if err != nil {
		return lb.MemoryPlan{}, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	backend := 8 + uint64(cpus)*uint64(unsafe.Sizeof(objects.XDPBackendCount{})) +
		uint64(unsafe.Sizeof(objects.XDPBackendLoad{}))
	plan := lb.MemoryPlan{
		ProvenLimit:   sizes.Flows * flowtable.PlannedPerBucket,
		UnprovenLimit: sizes.Newcomers * flowtable.PlannedPerBucket,
		Proven:        uint64(sizes.Flows) * uint64(flowtable.BucketSize),
		Unproven:      uint64(sizes.Newcomers) * uint64(flowtable.BucketSize),
		Configuration: configuration,
		Counters:      uint64(sizes.Backends)*backend + uint64(sizes.Services)*uint64(unsafe.Sizeof(objects.XDPTurn{})),
		Fragments:     evictingBytes(spec.Maps[objects.XDPMapFragments]),
	}
	// Where a mode needs no such map, it has one element.
	if sizes.Returns > 1 {
		plan.Returns = uint64(sizes.Returns) * uint64(returnBucketSize)
	}
	if sizes.RouteCache > 1 {
		plan.RouteCache = uint64(sizes.RouteCache)*(8+uint64(cpus)*uint64(unsafe.Sizeof(objects.XDPRouteEntry{}))) +
			uint64(sizes.replyHops())*uint64(unsafe.Sizeof(objects.XDPReplyHop{})) +
			uint64(unsafe.Sizeof(objects.XDPMirror{})) +
			uint64(sizes.replyBlocks())*uint64(unsafe.Sizeof(objects.XDPMirrorBlock{}))
	}
	return plan, nil
}

// evictingBytes returns the memory of an LRU hash map.
func evictingBytes(m *ebpf.MapSpec) uint64 {
	return uint64(m.MaxEntries)*uint64(hashElement+(m.KeySize+7)&^7+(m.ValueSize+7)&^7) + directoryBytes(m)
}

// directoryBytes returns the memory of a hash map without its elements.
func directoryBytes(m *ebpf.MapSpec) uint64 {
	return uint64(mapmem.PowerOfTwo(int(m.MaxEntries))) * hashBucket
}

// PlanChecks returns the kernel memory of the path of health checks, without the few hundred bytes for each checked
// backend.
func PlanChecks(spec *ebpf.CollectionSpec) lb.MemoryPlan {
	return lb.MemoryPlan{Checks: evictingBytes(spec.Maps[objects.CheckMapCheckAnswers]) +
		directoryBytes(spec.Maps[objects.CheckMapCheckTargets])}
}

// PlanWithout returns the plan without present maps that are large enough.
func PlanWithout(p lb.MemoryPlan, sizes Sizes, present *Maps) lb.MemoryPlan {
	if present == nil {
		return p
	}
	p.Fragments = 0
	if sizes.Flows <= present.Flows.MaxEntries() {
		p.Proven = 0
	}
	if sizes.Newcomers <= present.Newcomers.MaxEntries() {
		p.Unproven = 0
	}
	if sizes.Returns <= present.Returns.MaxEntries() {
		p.Returns = 0
	}
	if sizes.RouteCache <= present.RouteCache.MaxEntries() {
		p.RouteCache = 0
	}
	if sizes.Backends <= present.Counts.MaxEntries() && sizes.Services <= present.Turns.MaxEntries() {
		p.Counters = 0
	}
	return p
}

// CheckPlan returns an error if a plan does not fit into the available memory, with the largest limit that would.
func CheckPlan(p lb.MemoryPlan, available memleft.Available) error {
	room := available.Usable()
	if !available.Known || p.Total() <= room {
		return nil
	}
	return fmt.Errorf("%w: %s are needed (%s), and of %s that are available (%s) %s may be taken: %s",
		lb.ErrTooLarge, lb.Mebibytes(p.Total()), p.Parts(), lb.Mebibytes(available.Bytes), available.Source,
		lb.Mebibytes(room), AdviceFor(p, room))
}

// AdviceFor returns the advice for a plan that does not fit: mostly the largest limit of flows that would.
func AdviceFor(p lb.MemoryPlan, room uint64) string {
	largest, name := p.Proven, "flows.limit"
	if p.Unproven > largest {
		largest, name = p.Unproven, "flows.unproven"
	}
	// The table of replies grows with the flows: see flowtable.ReturnBucketsFor.
	flow, others := uint64(flowtable.BucketSize)*15/flowtable.PlannedPerBucket, p.Total()-largest
	if p.Returns > 0 && largest > 0 {
		flow += 4 * uint64(returnBucketSize)
		others -= p.Returns * largest / (p.Proven + p.Unproven)
	}
	switch {
	case p.Checks == p.Total():
		return "check backends by their own addresses (via: address)"
	case p.Configuration > largest:
		return "use fewer services, or a smaller table_size: " +
			lb.Mebibytes(room-min(p.Total()-p.Configuration, room)) + " of configuration would fit"
	case largest == 0 || others+flow > room:
		return "use fewer services, a smaller table_size, or smaller flows.limit and flows.unproven"
	}
	return fmt.Sprintf("%s: %d would fit", name, tables.RoundDown((room-others)*15/flow))
}
