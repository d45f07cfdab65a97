// SPDX-License-Identifier: Apache-2.0

package sizing

import (
	"fmt"
	"math"
	"slices"
)

// UsualBesideNs is the time that driver and kernel add to a packet in XDP, in nanoseconds: a starting point, and not a
// measurement of a network card (docs/weigh/plan.md).
const UsualBesideNs = 200

// Load is the traffic of all balancers together: the packets and bits that arrive and the new connections, each a
// second, and the number of flows that are open at once.
type Load struct {
	NewPerSecond     float64 `json:"new_per_second"`
	PacketsPerSecond float64 `json:"packets_per_second"`
	BitsPerSecond    float64 `json:"bits_per_second"`
	Flows            float64 `json:"flows"`
}

// Machine holds the resources of one balancer, and the cost of its packets.
type Machine struct {
	// Cores is the number of cores that packets are spread over, Usage the share of each, from 0 to 1, that may be
	// used.
	Cores float64 `json:"cores"`
	Usage float64 `json:"usage"`
	// KnownNs is the cost of a packet of a known flow, NewNs that of the first packet of a flow, in nanoseconds of a
	// core, and BesideNs the cost of driver and kernel, which is added to each.
	KnownNs  float64 `json:"known_ns"`
	NewNs    float64 `json:"new_ns"`
	BesideNs float64 `json:"beside_ns"`
	// LinkBits is the rate of its link in bits/s; 0: not asked.
	LinkBits float64 `json:"link_bits_per_second,omitempty"`
	// FlowLimit is the number of flows that it can remember; 0: it remembers none, or that is not asked.
	FlowLimit float64 `json:"flow_limit,omitempty"`
}

// Part is the need for one resource of balancers.
type Part struct {
	// Name is cores, link or flows.
	Name string `json:"name"`
	// Machines is the smallest number of machines that carry the load; with one more, one may fail.
	Machines int `json:"machines"`
	// Used is the share, from 0 to 1, of the usable part of the resource that each of N machines uses, and Failing the
	// same with one of them gone.
	Used    float64 `json:"used"`
	Failing float64 `json:"used_with_one_failing"`
}

// Need holds the machines and resources that a load needs.
type Need struct {
	// Machines is the number of machines that carry the load, one of which may fail.
	Machines int `json:"machines"`
	// By names the part that determines it.
	By    string `json:"by"`
	Parts []Part `json:"parts"`
	// Enough: the machines that were asked about carry the load with one of them gone.
	Enough bool `json:"enough"`
}

// CoreSeconds returns the number of core seconds that the load takes each second.
func (m Machine) CoreSeconds(l Load) float64 {
	first := min(l.NewPerSecond, l.PacketsPerSecond)
	return (l.PacketsPerSecond*m.BesideNs + (l.PacketsPerSecond-first)*m.KnownNs + first*m.NewNs) / 1e9
}

// NeedOf returns the need of the load, and the usage of n machines. It returns an error if the load or the machine is
// impossible.
func NeedOf(l Load, m Machine, n int) (Need, error) {
	switch {
	case n < 1:
		return Need{}, fmt.Errorf("%d balancers: at least one is needed", n)
	case !(m.Cores > 0) || !(m.Usage > 0) || m.Usage > 1:
		return Need{},
			fmt.Errorf("%g cores, of which %g may be used: give a number above 0, and a share above 0 of at most 1",
				m.Cores, m.Usage)
	case slices.ContainsFunc([]float64{l.NewPerSecond, l.PacketsPerSecond, l.BitsPerSecond, l.Flows, m.KnownNs, m.NewNs,
		m.BesideNs, m.LinkBits, m.FlowLimit},
		func(v float64) bool { return !(v >= 0) || math.IsInf(v, 0) }):
		return Need{}, fmt.Errorf("a load and a cost are finite, and not below 0")
	}
	need := Need{Enough: true}
	add := func(name string, load, each float64) {
		if each <= 0 {
			return
		}
		part := Part{Name: name, Machines: max(int(math.Ceil(load/each)), 1), Used: load / each / float64(n)}
		if n > 1 {
			part.Failing = load / each / float64(n-1)
		}
		need.Enough = need.Enough && part.Machines+1 <= n
		if part.Machines+1 > need.Machines {
			need.Machines, need.By = part.Machines+1, name
		}
		need.Parts = append(need.Parts, part)
	}
	add("cores", m.CoreSeconds(l), m.Cores*m.Usage)
	add("link", l.BitsPerSecond, m.LinkBits*m.Usage)
	add("flows", l.Flows, m.FlowLimit*m.Usage)
	return need, nil
}
