// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Neighbour is an entry of the kernel's neighbour table (ARP, NDP).
type Neighbour struct {
	Address   netip.Addr `json:"address"`
	Interface int        `json:"interface"`
	// State is a state of the kernel's, such as "FAILED".
	State string `json:"state"`
	MAC   string `json:"mac,omitempty"`
	// Since is how long it has been in that state, in seconds.
	Since float64 `json:"since"`
	// Gateway says that a route leads by it.
	Gateway bool `json:"gateway,omitempty"`
}

// neighbourStates are the kernel's names of the states (ip-neighbour(8)).
var neighbourStates = map[int]string{
	netlink.NUD_INCOMPLETE: "INCOMPLETE", netlink.NUD_REACHABLE: "REACHABLE", netlink.NUD_STALE: "STALE",
	netlink.NUD_DELAY: "DELAY", netlink.NUD_PROBE: "PROBE", netlink.NUD_FAILED: "FAILED",
	netlink.NUD_NOARP: "NOARP", netlink.NUD_PERMANENT: "PERMANENT", netlink.NUD_NONE: "NONE",
}

// tick is the unit of the times that the kernel gives with a neighbour (USER_HZ).
const tick = time.Second / 100

func readNeighbours() ([]Neighbour, error) {
	gateways := map[netip.Addr]bool{}
	routes, err := netdump.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, r := range routes {
		if a, ok := netip.AddrFromSlice(r.Gw); ok {
			gateways[a.Unmap()] = true
		}
	}
	all, err := netdump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	var neighbours []Neighbour
	for _, n := range all {
		address, ok := netip.AddrFromSlice(n.IP)
		if !ok || address.IsMulticast() || n.State == netlink.NUD_NOARP || n.State == netlink.NUD_NONE {
			continue
		}
		address = address.Unmap()
		neighbours = append(neighbours, Neighbour{Address: address, Interface: n.LinkIndex,
			State: neighbourStates[n.State],
			MAC:   n.HardwareAddr.String(), Since: (time.Duration(n.Updated) * tick).Seconds(),
			Gateway: gateways[address]})
	}
	return neighbours, nil
}

// readTableFulls counts how often a neighbour table of the machine had no room.
func readTableFulls() (uint64, error) {
	own, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return 0, err
	}
	tables, err := own.NetStat()
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, t := range tables {
		if strings.HasSuffix(t.Filename, "arp_cache") || strings.HasSuffix(t.Filename, "ndisc_cache") {
			for _, n := range t.Stats["table_fulls"] {
				sum += n
			}
		}
	}
	return sum, nil
}

// resolving is how long the kernel asks for a neighbour until it gives up, in
// seconds: an entry that failed no longer ago than that, and the time of the look,
// is one that a sender waits for.
const resolving = 4

func judgeNeighbours(e *Evidence) (findings []Finding) {
	dropped, _ := e.dropped("NEIGH_FAILED", "NEIGH_QUEUEFULL")
	var figures []Figure
	var names []string
	for _, n := range e.After.Neighbours {
		if n.State != "FAILED" && n.State != "INCOMPLETE" || !e.wanted(n, dropped) {
			continue
		}
		name := e.After.nameOf(n.Address)
		names = append(names, name)
		figures = append(figures, Figure{Name: "neighbour " + n.State, On: name, Value: n.Since, Unit: "seconds"})
	}
	if len(figures) > 0 {
		title := fmt.Sprintf("%s does not answer ARP or NDP", names[0])
		if len(names) > 1 {
			title = fmt.Sprintf("%d neighbours do not answer ARP or NDP, such as %s", len(names), names[0])
		}
		findings = append(findings,
			finding(neighbourFailed, title,
				append(bounded(figures), seen(e.dropFigure("NEIGH_FAILED"), e.dropFigure("NEIGH_QUEUEFULL"))...)...))
	}
	full := Figure{Name: "table_fulls", Value: float64(less(e.After.TableFulls, e.Before.TableFulls)),
		Unit: "neighbours"}
	created := e.dropFigure("NEIGH_CREATEFAIL")
	if created.Value > 0 || full.Value > 0 && (e.Machine || !e.Traced) {
		findings = append(findings, finding(neighbourTable, "The table of neighbours is full", seen(full, created)...))
	}
	return findings
}

// wanted says whether a sender misses a neighbour: something that was tried long ago is
// no fault.
func (e *Evidence) wanted(n Neighbour, dropped uint64) bool {
	if slices.ContainsFunc(e.After.hops(), func(h hop) bool { return h.address == n.Address }) {
		return true
	}
	recent := n.State == "INCOMPLETE" || n.Since <= e.Seconds+resolving
	return recent && (dropped > 0 || n.Gateway || !e.Traced)
}

// hop is a next hop of a balancer's packets for a backend.
type hop struct {
	address netip.Addr
	name    string
}

// hops are the next hops of the balancer's backends, each once.
func (r *Reading) hops() (hops []hop) {
	if r.Balancer == nil {
		return nil
	}
	for _, s := range r.Balancer.Services {
		for _, b := range s.Backends {
			h := hop{b.Address, fmt.Sprintf("backend %s/%s", s.Name, b.Name)}
			if b.NextHop.IsValid() && b.NextHop != b.Address {
				h = hop{b.NextHop, fmt.Sprintf("router to %s/%s", s.Name, b.Name)}
			}
			if !slices.ContainsFunc(hops, func(x hop) bool { return x.address == h.address }) {
				hops = append(hops, h)
			}
		}
	}
	return hops
}

// nameOf returns an address, with the backend or the router that it is to the balancer.
func (r *Reading) nameOf(a netip.Addr) string {
	for _, h := range r.hops() {
		if h.address == a {
			return fmt.Sprintf("%s (%s)", a, h.name)
		}
	}
	return a.String()
}
