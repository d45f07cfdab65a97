// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Wire has the answers on the segment to questions that do no harm, and the announcements that others made unasked.
type Wire struct {
	// Claims are the MAC addresses that an address was claimed for, by ARP or NDP.
	Claims []Claim `json:"claims,omitempty"`
	// Echoes say which backends have which VIP.
	Echoes []Echo `json:"echoes,omitempty"`
	// Provoked are answers that bore a VIP for their sender: the kernel of the balancer,
	// whose address that is, drops them (IP_LOCAL_SOURCE).
	Provoked uint64 `json:"provoked,omitempty"`
}

// Claim is an address that was asked for, and who claimed it.
type Claim struct {
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	// VIP says that the address is a VIP.
	VIP bool `json:"vip,omitempty"`
	// Known is the neighbour table's MAC address; empty if it has none that is used.
	Known string `json:"known,omitempty"`
	// MACs are the MAC addresses of others that claimed it, and Ours says that this host did.
	MACs []string `json:"macs,omitempty"`
	Ours bool     `json:"ours,omitempty"`
}

// Echo is whether a backend answers pings to its own address and to a VIP, both sent
// to its MAC address. Where Port is not 0, the backend is a node of a cluster, and was asked for a connection to the
// VIP and port instead.
type Echo struct {
	Backend string     `json:"backend"`
	Address netip.Addr `json:"address"`
	VIP     netip.Addr `json:"vip"`
	Port    uint16     `json:"port,omitempty"`
	Own     bool       `json:"own_answered"`
	Has     bool       `json:"vip_answered"`
}

func judgeWire(e *Evidence) (findings []Finding) {
	for _, c := range e.Wire.Claims {
		name := e.After.nameOf(c.Address)
		answers := func(who string) (figures []Figure) {
			for _, mac := range c.MACs {
				figures = append(figures, Figure{Name: who, On: mac, Value: 1, Unit: "host", Note: "on " + c.Interface +
					e.hostOf(mac)})
			}
			return figures
		}
		switch {
		case c.VIP && c.Ours && e.onLoopback(c.Address):
			findings = append(findings,
				finding(vipAnswered, fmt.Sprintf("This host answers for %s, which it has on its loopback only",
					c.Address),
					Figure{Name: "ARP or NDP for the address", On: c.Interface, Value: 1, Unit: "host",
						Note: "this one"}))
		case c.VIP && len(c.MACs) > e.rightful(c.Address):
			kind := vipAnswered
			if e.isNode(c) {
				kind = strictARP
			}
			findings = append(findings, finding(kind, vipTitle(e, c), answers("claims the address")...))
		case !c.VIP && len(c.MACs) > 1:
			f := finding(vipAnswered, fmt.Sprintf("More than one host answers for %s", name),
				answers("claims the address")...)
			f.Means = "Packets for that address go to whichever answered last."
			f.Cures = []Cure{{Do: "Give one of them another address."}}
			findings = append(findings, f)
		case c.Known != "" && len(c.MACs) > 0 && !slices.Contains(c.MACs, c.Known):
			findings = append(findings,
				finding(wrongMAC, fmt.Sprintf("The neighbour table has the wrong MAC address for %s", name),
					append([]Figure{{Name: "neighbour table", On: c.Known, Value: 1, Unit: "entry", Note: "on " +
						c.Interface}}, answers("answers")...)...))
		}
	}
	return append(findings, judgeEchoes(e)...)
}

// rightful is how many others may claim a VIP: none where this host has it on an
// interface of its own, else the balancer.
func (e *Evidence) rightful(vip netip.Addr) int {
	if e.After.own(vip) && !e.onLoopback(vip) {
		return 0
	}
	return 1
}

// onLoopback says whether this host has an address on its loopback only, as a
// backend has a VIP.
func (e *Evidence) onLoopback(a netip.Addr) bool {
	found := false
	for _, l := range e.After.Links {
		for _, p := range l.Addresses {
			if p.Addr() != a {
				continue
			}
			if l.Name != "lo" {
				return false
			}
			found = true
		}
	}
	return found
}

func vipTitle(e *Evidence, c Claim) string {
	who := c.MACs[0] + e.hostOf(c.MACs[0])
	if e.rightful(c.Address) == 0 {
		return fmt.Sprintf("Another host answers for the VIP %s: %s", c.Address, who)
	}
	return fmt.Sprintf("%d hosts answer for the VIP %s", len(c.MACs), c.Address)
}

// hostOf names the host of a MAC address, where a neighbour has it; with ", " before.
func (e *Evidence) hostOf(mac string) string {
	for _, n := range e.After.Neighbours {
		if n.MAC == mac && !n.Address.IsLinkLocalUnicast() {
			return ", " + e.After.nameOf(n.Address)
		}
	}
	return ""
}

// judgeEchoes looks for backends without their VIP, as the balancer sees it: they
// answer for their own address and not for the VIP.
func judgeEchoes(e *Evidence) (findings []Finding) {
	missing := map[netip.Addr][]string{}
	var order []netip.Addr
	for _, echo := range e.Wire.Echoes {
		if !echo.Own || echo.Has || echo.Port > 0 {
			continue
		}
		if missing[echo.VIP] == nil {
			order = append(order, echo.VIP)
		}
		missing[echo.VIP] = append(missing[echo.VIP], fmt.Sprintf("%s (%s)", echo.Backend, echo.Address))
	}
	for _, vip := range order {
		var figures []Figure
		for _, backend := range missing[vip] {
			figures = append(figures, Figure{Name: "answers pings to its own address, not to the VIP", On: backend,
				Value: 1, Unit: "backend"})
		}
		findings = append(findings,
			finding(vipMissing, fmt.Sprintf("The VIP %s is missing on %s", vip, strings.Join(missing[vip], ", ")),
				bounded(figures)...))
	}
	return append(findings, judgeNodes(e)...)
}

// judgeNodes looks for nodes of a cluster that answer for their own address, and not for a Service's address and port.
func judgeNodes(e *Evidence) []Finding {
	var figures []Figure
	for _, echo := range e.Wire.Echoes {
		if echo.Port > 0 && echo.Own && !echo.Has {
			figures = append(figures, Figure{Name: "accepts no connection to " +
				netip.AddrPortFrom(echo.VIP, echo.Port).String(), On: echo.Backend, Value: 1, Unit: "node",
				Note: "it answers pings to its own address " + echo.Address.String()})
		}
	}
	if len(figures) == 0 {
		return nil
	}
	return []Finding{finding(nodeWithoutRule, fmt.Sprintf("Node %s has no rule for a Service's address: it %s",
		figures[0].On, figures[0].Name), bounded(figures)...)}
}

// isNode says whether one of those that claim a VIP is a node of a cluster that the VIP's services send to.
func (e *Evidence) isNode(c Claim) bool {
	status := e.After.Balancer
	if status == nil {
		return false
	}
	for i := range status.Services {
		s := &status.Services[i]
		if s.VIP == c.Address && status.IsOfCluster(s) && slices.ContainsFunc(s.Backends, func(b ops.Backend) bool {
			return slices.Contains(c.MACs, b.MAC)
		}) {
			return true
		}
	}
	return false
}
