// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// writeBGP prints the announcements of the VIPs, and the sessions with routers.
func writeBGP(w io.Writer, bgp *ops.BGP) {
	if bgp == nil {
		return
	}
	speaker, process := "no speaker", ""
	if bgp.SpeakerPID != 0 {
		process = fmt.Sprintf("process %d", bgp.SpeakerPID)
		speaker = "speaker: " + process
	}
	if bgp.Speaker == lb.SpeakerLocal {
		fmt.Fprintf(w, "\nBGP by a daemon of this host: routes of protocol %d in table %d (%s)\n", lb.RouteProtocol,
			bgp.Table, cmp.Or(process, "no process keeps them"))
	} else {
		fmt.Fprintf(w, "\nBGP as AS %d, %s (%s)\n", bgp.ASN, bgp.RouterID, speaker)
	}
	if d := bgp.Drained; d != nil {
		fmt.Fprintf(w, "  drained by %s at %s, VIPs withdrawn from %s on\n", d.By, d.At.Local().Format(time.DateTime),
			d.Withdrawn.Local().Format(time.TimeOnly))
	}
	for _, p := range bgp.Peers {
		fmt.Fprintf(w, "  peer %s, AS %d: %s\n", p.Address, p.ASN, peerText(p))
		if p.BFD != nil {
			fmt.Fprintf(w, "    BFD %s\n", bfdText(*p.BFD))
		}
	}
	for _, v := range bgp.VIPs {
		if v.Announced {
			fmt.Fprintf(w, "  %s is announced\n", v.VIP)
		} else {
			fmt.Fprintf(w, "  %s is not announced: %s\n", v.VIP, v.Reason)
		}
	}
	for _, a := range bgp.Pool {
		whose := "of full NAT"
		if a.Backup {
			whose = "of another member's full NAT, as backup"
		}
		fmt.Fprintf(w, "  %s is announced, %s\n", a.Address, whose)
	}
}

// bfdText describes the state of the path to a router.
func bfdText(b ops.BFD) string {
	text := b.State
	switch {
	case b.Up():
		text += fmt.Sprintf(", each %s, lost after %s", cmdkit.SecondsText(b.IntervalSeconds), cmdkit.SecondsText(b.DetectionSeconds))
	case b.Problem != "":
		text += ": " + b.Problem
	case b.Diagnostic != "none":
		text += ": " + b.Diagnostic
	}
	if b.Failures > 0 {
		text += fmt.Sprintf(", lost %s times", cmdkit.Count(b.Failures))
	}
	return text + cmdkit.SinceText(b.Since)
}

func peerText(p ops.BGPPeer) string {
	text := p.State
	if p.Established() {
		text += fmt.Sprintf(", hold time %s", cmdkit.SecondsText(p.HoldSeconds))
		if p.Restarts {
			text += ", keeps routes over restarts"
		}
		if p.Received > 0 {
			text += fmt.Sprintf(", announces %s routes, which are ignored", cmdkit.Count(p.Received))
		}
	} else if p.Reason != "" {
		text += ": " + p.Reason
	}
	if !p.Since.IsZero() {
		text += cmdkit.SinceText(p.Since)
	}
	return text
}
