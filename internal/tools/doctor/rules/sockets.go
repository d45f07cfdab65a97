// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// checkListeners looks for programs that do not accept connections fast enough.
func checkListeners(e *evidence.Evidence) (findings []Finding) {
	overflows, dropped := counted(e, "TcpExtListenOverflows", "connections"), dropFigure(e, "TCP_LISTEN_OVERFLOW")
	if overflows.Value > 0 || dropped.Value > 0 {
		figures := nonZero(overflows, counted(e, "TcpExtListenDrops", "packets"), dropped)
		title := "The queue of a listening socket is full"
		if full := e.FullListeners(); len(full) > 0 {
			title = fmt.Sprintf("The listen queue of %s is full", full[0].Address)
			for _, l := range full {
				figures = append(figures, Figure{Name: "accept queue", On: l.Address.String(), Value: float64(l.Queue),
					Unit: "connections", Of: float64(l.Limit)})
			}
		}
		findings = append(findings, finding(listenQueueFull, title, figures...))
	}
	cookies := nonZero(counted(e, "TcpExtSyncookiesSent", "cookies"), counted(e, "TcpExtTCPReqQFullDoCookies", "times"),
		counted(e, "TcpExtTCPReqQFullDrop", "connections"))
	if len(cookies) > 0 {
		findings = append(findings, finding(synCookies, "More connections are half open than a queue holds",
			cookies...))
	}
	return findings
}

// checkPorts looks for destinations to which no more connections can be opened. The error that a program gets is in no
// counter.
func checkPorts(e *evidence.Evidence) (findings []Finding) {
	s := e.After.Sockets
	if s == nil || s.Ports.Size() <= 0 {
		return nil
	}
	for _, d := range s.Destinations {
		used := d.Ports
		if s.Ports.Reuse {
			used -= d.TimeWait
		}
		if float64(used) < fullShare*float64(s.Ports.Size()) {
			continue
		}
		findings = append(findings, finding(portsExhausted,
			fmt.Sprintf("All local ports for connections from %s to %s are taken: %d of %d", d.From, d.To, used,
				s.Ports.Size()),
			Figure{Name: "local ports", On: d.To.String(), Value: float64(used), Unit: "ports",
				Of:   float64(s.Ports.Size()),
				Note: fmt.Sprintf("range %d to %d", s.Ports.First, s.Ports.Last)},
			Figure{Name: "TIME-WAIT", On: d.To.String(), Value: float64(d.TimeWait), Unit: "of these"}))
	}
	return findings
}
