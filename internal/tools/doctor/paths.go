// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"slices"
)

// Path is the result of pings to an address that may not be fragmented.
type Path struct {
	Address netip.Addr `json:"address"`
	// Size is that of the largest packet that should pass, in bytes of the IP packet.
	Size int `json:"size"`
	// Small and Large say whether a small one and one of that size were answered.
	Small bool `json:"small_answered"`
	Large bool `json:"large_answered"`
	// Told says that a router reported it too big (path MTU discovery works).
	Told bool `json:"told,omitempty"`
	// Passes is the largest of the sizes tried that was answered.
	Passes int `json:"passes,omitempty"`
}

// manyTimeouts is after how many a connection hangs.
const manyTimeouts = 2

// stuck says that a connection hangs as one does whose large packets are lost: it was
// set up, and not one full segment was ever acknowledged.
func (h Hanging) stuck() bool {
	return h.Timeouts >= manyTimeouts && h.MSS > 536 && h.Acknowledged < uint64(h.MSS)
}

func judgePaths(e *Evidence) (findings []Finding) {
	for _, p := range e.Paths {
		if !p.Small || p.Large || p.Told {
			continue
		}
		figures := []Figure{{Name: "unanswered ping", On: p.Address.String(), Value: float64(p.Size), Unit: "bytes",
			Note: "while small ones are answered"},
			{Name: "answered ping", On: p.Address.String(), Value: float64(p.Passes), Unit: "bytes",
				Note: "the largest of those tried"}}
		if n := e.hangingTo(p.Address); n > 0 {
			figures = append(figures, Figure{Name: "hanging connections", On: p.Address.String(), Value: float64(n),
				Unit: "connections"})
		}
		findings = append(findings, finding(mtuBlackHole,
			fmt.Sprintf("Packets of %d bytes to %s vanish without an ICMP error; %d bytes pass", p.Size,
				e.After.nameOf(p.Address), p.Passes), figures...))
	}
	if len(findings) > 0 {
		return findings
	}
	return judgeHanging(e)
}

func (e *Evidence) hangingTo(a netip.Addr) (n int) {
	if e.After.Sockets == nil {
		return 0
	}
	for _, h := range e.After.Sockets.Hanging {
		if h.Peer.Addr() == a && h.stuck() {
			n++
		}
	}
	return n
}

// hangingShare is from which share of all connections on those that hang are told of:
// everywhere a few clients go away without a word.
const hangingShare = 0.05

// judgeHanging concludes from connections alone, where the peers answer no pings.
func judgeHanging(e *Evidence) []Finding {
	if e.After.Sockets == nil {
		return nil
	}
	var figures []Figure
	for _, h := range e.After.Sockets.Hanging {
		passes := slices.ContainsFunc(e.Paths, func(p Path) bool {
			return p.Address == h.Peer.Addr() && (p.Large || p.Told)
		})
		if h.stuck() && !passes {
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
