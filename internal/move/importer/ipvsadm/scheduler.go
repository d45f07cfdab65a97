// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// schedulers maps IPVS's schedulers to the closest scheduler. why describes the difference.
var schedulers = map[string]struct {
	is  lb.Scheduler
	why string
}{
	"rr":   {lb.RoundRobin, ""},
	"wrr":  {lb.WeightedRoundRobin, ""},
	"lc":   {lb.LeastConnections, ""},
	"wlc":  {lb.WeightedLeastConnections, ""},
	"sh":   {lb.SourceHash, ""},
	"mh":   {lb.SourceHash, ""},
	"fo":   {lb.Failover, ""},
	"twos": {lb.TwoChoices, ""},
	"sed":  {lb.WeightedLeastConnections, "sed counts the connection to come as well; wlc is the closest"},
	"nq":   {lb.WeightedLeastConnections, "nq prefers backends without connections; wlc is the closest"},
	"ovf": {lb.Failover,
		"ovf goes on to the next backend when one has as many active connections as its weight; here upper is that weight, and half-open ones count"},
	"dh": {lb.SourceHash,
		"dh goes by the destination, which is the VIP for all clients of a service; here clients are spread by their address"},
	"lblc": {lb.SourceHash,
		"lblc is for caches, by the destination, which is the VIP for all clients of a service; here clients are spread by their address"},
	"lblcr": {lb.SourceHash,
		"lblcr is for caches, by the destination, which is the VIP for all clients of a service; here clients are spread by their address"},
}

// Schedule sets the scheduler closest to an IPVS scheduler, with flags for hashing of ports, and sorts the backends in
// the order of fo and ovf. at is the scheduler's line.
func Schedule(d *draft.Draft, s *draft.Service, at remark.At, name, flags string) {
	own, known := schedulers[name]
	if !known {
		own.is, own.why = lb.WeightedLeastConnections, "Jeoul has no scheduler "+name+
			"; wlc, the default of IPVS, is in its place"
	}
	s.Scheduler = own.is
	if own.why != "" {
		d.Approximate(at, "%s", own.why)
	}
	if s.Scheduler == lb.SourceHash && strings.Contains(flags, "port") {
		s.Scheduler = lb.Maglev // Maglev hashes the flow
	}
	if name == "ovf" {
		for j := range s.Backends {
			s.Backends[j].Upper = uint32(s.Backends[j].Weight)
		}
	}
	if s.Scheduler == lb.Failover {
		byWeight(s)
	}
}

// byWeight sorts the backends in the order in which IPVS's fo and ovf select them. Weights mean nothing else there; a
// backend with weight 0 is never selected.
func byWeight(s *draft.Service) {
	order := make([]int, len(s.Backends))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(s.Backends[b].Weight) - int(s.Backends[a].Weight) })
	backends, lines := s.Backends, s.BackendAt
	s.Backends, s.BackendAt = nil, nil
	for _, j := range order {
		backends[j].Weight = min(backends[j].Weight, 1)
		s.Add(lines[j], backends[j])
	}
}
