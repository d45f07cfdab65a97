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

// numbersIn lists the enums whose numbers the elements of a shared map hold.
var numbersIn = map[string][]string{
	objects.XDPMapOutcomes:  {"outcome"},
	objects.XDPMapFragments: {"outcome", "mode"},
	objects.XDPMapFlows:     {"flow_state", "flow_table"},
	objects.XDPMapNewcomers: {"flow_state", "flow_table"},
	objects.XDPMapReturns:   {"return_table"},
}

// AddedMaps are shared maps that builds before 0.5 do not have, and that begin empty.
var AddedMaps = []string{objects.XDPMapReplyHops, objects.XDPMapReplyRoutes, objects.XDPMapReplyBlocks}

// A start makes shared maps in another build's layout again. Their contents are asked for again (ways, reply_hops,
// reply_routes, reply_blocks), counted or written again (turns, loads), carried over by name (outcomes), read field by
// field (flows, counters of backends, prefixes), or valid for only a second (allowances) or half a minute (fragments).

// SharedLayouts identifies the type of each shared map and the layout of its elements, by the map's name, from the
// program's own type information. Another program can go on with a map of the same layout. Keys are not in it; see
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

// FlowMaps are those that flows are in. Where one of them is laid out differently, all are recreated, and the flows are
// carried over: an entry of the returns leads to the place of a flow.
var FlowMaps = []string{objects.XDPMapFlows, objects.XDPMapNewcomers, objects.XDPMapReturns}

// OtherLayouts lists the shared maps whose layout differs from ours, or that are missing.
func OtherLayouts(there map[string]string, elements map[string]snapshot.ElementLayout) (all []string, err error) {
	ours, err := SharedLayouts()
	if err != nil {
		return nil, err
	}
	fields, err := ElementLayouts()
	if err != nil {
		return nil, err
	}
	for name, layout := range ours {
		of, described := elements[name]
		if there[name] != layout || described && !of.Equal(fields[name]) {
			all = append(all, name)
		}
	}
	if slices.ContainsFunc(all, func(name string) bool { return slices.Contains(FlowMaps, name) }) {
		all = append(all, FlowMaps...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
