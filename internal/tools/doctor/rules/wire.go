// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

func checkWire(e *evidence.Evidence) (findings []Finding) {
	for _, c := range e.Wire.Claims {
		name := e.After.NameOf(c.Address)
		answers := func(who string) (figures []Figure) {
			for _, mac := range c.MACs {
				figures = append(figures, Figure{Name: who, On: mac, Value: 1, Unit: "host", Note: "on " + c.Interface +
					e.HostOf(mac)})
			}
			return figures
		}
		switch {
		case c.VIP && c.Ours && e.OnLoopback(c.Address):
			findings = append(findings,
				finding(vipAnswered, fmt.Sprintf("This host answers for %s, which it has on its loopback only",
					c.Address),
					Figure{Name: "ARP or NDP for the address", On: c.Interface, Value: 1, Unit: "host",
						Note: "this one"}))
		case c.VIP && len(c.MACs) > e.ExpectedHolders(c.Address):
			kind := vipAnswered
			if e.IsNode(c) {
				kind = strictARP
			}
			findings = append(findings, finding(kind, vipTitle(e, c), answers("claims the address")...))
		case !c.VIP && len(c.MACs) > 1:
			f := finding(vipAnswered, fmt.Sprintf("More than one host answers for %s", name),
				answers("claims the address")...)
			f.Means = "Packets for that address go to whichever answered last."
			f.Remedies = []Remedy{{Do: "Give one of them another address."}}
			findings = append(findings, f)
		case c.Known != "" && len(c.MACs) > 0 && !slices.Contains(c.MACs, c.Known):
			findings = append(findings,
				finding(wrongMAC, fmt.Sprintf("The neighbour table has the wrong MAC address for %s", name),
					append([]Figure{{Name: "neighbour table", On: c.Known, Value: 1, Unit: "entry", Note: "on " +
						c.Interface}}, answers("answers")...)...))
		}
	}
	return append(findings, checkEchoes(e)...)
}

func vipTitle(e *evidence.Evidence, c evidence.Claim) string {
	who := c.MACs[0] + e.HostOf(c.MACs[0])
	if e.ExpectedHolders(c.Address) == 0 {
		return fmt.Sprintf("Another host answers for the VIP %s: %s", c.Address, who)
	}
	return fmt.Sprintf("%d hosts answer for the VIP %s", len(c.MACs), c.Address)
}

// checkEchoes looks for backends without their VIP, as the balancer sees it: backends that answer for their own address
// but not for the VIP.
func checkEchoes(e *evidence.Evidence) (findings []Finding) {
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
	return append(findings, checkNodes(e)...)
}

// checkNodes looks for cluster nodes that answer for their own address, but not for a Service's address and port.
func checkNodes(e *evidence.Evidence) []Finding {
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
