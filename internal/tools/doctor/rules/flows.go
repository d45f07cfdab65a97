// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// A backend is slow if its median is at least slowFactor times that of the others, and greater by at least slowMs
// milliseconds, each from at least fewResponses responses.
const (
	slowFactor   = 5
	slowMs       = 5
	fewResponses = 5
	fewSilent    = 3
	silentShare  = 0.5
	// manyRepeats is a number of SYNs that no client sends during an examination (RFC 6298: after 1, 3, 7 … seconds;
	// Linux begins with one per second).
	manyRepeats = 20
)

func checkFlows(e *evidence.Evidence) (findings []Finding) {
	// A connection also looks silent if none of its further packets was reported.
	unsure := float64(e.Flows.Lost) > silentShare/2*float64(e.Flows.Packets)
	for _, b := range e.Flows.Backends {
		if b.Repeats >= manyRepeats {
			findings = append(findings,
				finding(forwardingLoop, fmt.Sprintf("Packets that go to backend %s (%s) come back", b.Name, b.Address),
					Figure{Name: "the same SYN again", On: b.Name, Value: float64(b.Repeats), Unit: "times"}))
		}
		if !unsure && b.Silent >= fewSilent && float64(b.Silent) >= silentShare*float64(b.Opened) {
			findings = append(findings,
				finding(backendSilent, fmt.Sprintf("Backend %s (%s) does not answer", b.Name, b.Address),
					Figure{Name: "unanswered connections", On: b.Name, Value: float64(b.Silent), Unit: "connections",
						Of: float64(b.Opened)}))
		}
		var others []float64
		for _, o := range e.Flows.Backends {
			if o.Name != b.Name && o.Service == b.Service && o.Responses >= fewResponses {
				others = append(others, o.MedianMs)
			}
		}
		if b.Responses < fewResponses || len(others) == 0 {
			continue
		}
		usual := evidence.Median(others)
		if b.MedianMs < slowFactor*usual || b.MedianMs-usual < slowMs {
			continue
		}
		findings = append(findings,
			finding(backendSlow, fmt.Sprintf("Backend %s (%s) takes %.0f times as long to answer as the others", b.Name,
				b.Address, b.MedianMs/max(usual, 0.1)),
				Figure{Name: "median response", On: b.Name, Value: b.MedianMs, Unit: "ms",
					Note: fmt.Sprintf("of %d", b.Responses)},
				Figure{Name: "median response", On: "the others", Value: usual, Unit: "ms"}))
	}
	return findings
}
