// SPDX-License-Identifier: Apache-2.0

package sharedmaps

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// numbersIn lists the enums whose values the elements of a shared map have.
var numbersIn = map[string][]string{
	objects.XDPMapOutcomes:  {"outcome"},
	objects.XDPMapFragments: {"outcome", "mode"},
	objects.XDPMapFlows:     {"flow_state", "flow_table"},
	objects.XDPMapNewcomers: {"flow_state", "flow_table"},
	objects.XDPMapReturns:   {"return_table"},
}

// AddedMaps are shared maps that builds before 0.5 do not have, and that start empty.
var AddedMaps = []string{objects.XDPMapReplyHops, objects.XDPMapReplyRoutes, objects.XDPMapReplyBlocks}

// Open recreates shared maps that are in another build's layout. Their contents are looked up again (ways, reply_hops,
// reply_routes, reply_blocks), counted or written again (turns, loads), copied by name (outcomes), read field by field
// (flows, counters of backends, prefixes), or valid for only a second (allowances) or half a minute (fragments).

// SharedLayouts identifies the type of each shared map and the layout of its elements, by the map's name, from the
// program's own type information. Another program can use a map of the same layout. Keys are not included: see
// ElementLayouts.
var SharedLayouts = sync.OnceValues(func() (map[string]string, error) {
	spec, err := objects.XDP.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	layouts, format := map[string]string{}, btf.GoFormatter{}
	for name := range (&Maps{}).ByName() {
		hash, m := sha256.New(), spec.Maps[name]
		fmt.Fprintln(hash, m.Type, m.KeySize, m.ValueSize, m.Flags)
		if m.Value != nil {
			text, err := format.TypeDeclaration("value", m.Value)
			if err != nil {
				return nil, fmt.Errorf("describing the elements of %s of the embedded eBPF program: %v", name, err)
			}
			fmt.Fprintln(hash, text)
		}
		for _, enum := range numbersIn[name] {
			var of *btf.Enum
			if err := spec.Types.TypeByName(enum, &of); err != nil {
				return nil, fmt.Errorf("looking for the type %s of the embedded eBPF program: %v", enum, err)
			}
			for _, v := range of.Values {
				fmt.Fprintln(hash, v.Name, v.Value)
			}
		}
		layouts[name] = hex.EncodeToString(hash.Sum(nil)[:8])
	}
	return layouts, nil
})

// FlowMaps are the maps of flows. If the layout of one differs, all are recreated, and the flows copied: a return entry
// refers to the place of a flow.
var FlowMaps = []string{objects.XDPMapFlows, objects.XDPMapNewcomers, objects.XDPMapReturns}

// OtherLayouts lists the shared maps whose layout differs from this build's, or that are missing.
func OtherLayouts(theirs map[string]string, elements map[string]snapshot.ElementLayout) (all []string, err error) {
	ours, err := SharedLayouts()
	if err != nil {
		return nil, err
	}
	fields, err := ElementLayouts()
	if err != nil {
		return nil, err
	}
	for name, layout := range ours {
		element, described := elements[name]
		if theirs[name] != layout || described && !element.Equal(fields[name]) {
			all = append(all, name)
		}
	}
	if slices.ContainsFunc(all, func(name string) bool { return slices.Contains(FlowMaps, name) }) {
		all = append(all, FlowMaps...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
