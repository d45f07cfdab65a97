// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

func checkPaths(e *evidence.Evidence) (findings []Finding) {
	for _, p := range e.Paths {
		if !p.Small || p.Large || p.Told {
			continue
		}
		figures := []Figure{{Name: "unanswered ping", On: p.Address.String(), Value: float64(p.Size), Unit: "bytes",
			Note: "while small ones are answered"},
			{Name: "answered ping", On: p.Address.String(), Value: float64(p.Passes), Unit: "bytes",
				Note: "the largest of those tried"}}
		if n := e.HangingTo(p.Address); n > 0 {
			figures = append(figures, Figure{Name: "hanging connections", On: p.Address.String(), Value: float64(n),
				Unit: "connections"})
		}
		findings = append(findings, finding(mtuBlackHole,
			fmt.Sprintf("Packets of %d bytes to %s vanish without an ICMP error; %d bytes pass", p.Size,
				e.After.NameOf(p.Address), p.Passes), figures...))
	}
	if len(findings) > 0 {
		return findings
	}
	return checkHanging(e)
}

// hangingShare is the share of all connections from which hanging ones are reported: everywhere a few clients disappear
// without closing.
const hangingShare = 0.05

// checkHanging uses connections alone, where the peers do not answer pings.
func checkHanging(e *evidence.Evidence) []Finding {
	if e.After.Sockets == nil {
		return nil
	}
	var figures []Figure
	for _, h := range e.After.Sockets.Hanging {
		passes := slices.ContainsFunc(e.Paths, func(p evidence.Path) bool {
			return p.Address == h.Peer.Addr() && (p.Large || p.Told)
		})
		if h.Stuck() && !passes {
			figures = append(figures, Figure{Name: "timeouts", On: h.Peer.String(), Value: float64(h.Timeouts),
				Unit: "times",
				Note: fmt.Sprintf("%d bytes a segment, %d bytes acknowledged so far", h.MSS, h.Acknowledged)})
		}
	}
	if float64(len(figures)) < max(2, hangingShare*float64(e.After.Sockets.Established)) {
		return nil
	}
	return []Finding{finding(connectionsHang,
		fmt.Sprintf("%d connections hang: their full-size segments are never acknowledged", len(figures)),
		bounded(figures)...)}
}
