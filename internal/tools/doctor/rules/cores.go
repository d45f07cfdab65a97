// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// squeezesPerSecond is the rate of early stops of a core up to which there is no finding.
const squeezesPerSecond = 100

// checkSoftnet evaluates the cores' backlog queues. Their counters are machine-wide. In a container the doctor uses
// them only if the kernel reported a drop in the container's own namespace.
func checkSoftnet(e *evidence.Evidence) (findings []Finding) {
	own, _ := e.Dropped("CPU_BACKLOG")
	var dropped, squeezed []Figure
	for _, c := range e.CoreWork() {
		core := fmt.Sprintf("core %d", c.Index)
		if c.Dropped > 0 {
			dropped = append(dropped, Figure{Name: "softnet dropped", On: core, Value: float64(c.Dropped),
				Unit: "packets", Of: float64(c.Processed) + float64(c.Dropped)})
		}
		if float64(c.Squeezed) > squeezesPerSecond*e.Seconds {
			squeezed = append(squeezed, Figure{Name: "softnet time_squeeze", On: core, Value: float64(c.Squeezed),
				Unit: "times"})
		}
	}
	if own > 0 || len(dropped) > 0 && (e.Machine || !e.Traced) {
		title := "A core's queue of arriving packets (the backlog) is full"
		if len(dropped) == 1 {
			title = "The queue of arriving packets (the backlog) of " + dropped[0].On + " is full"
		}
		findings = append(findings,
			finding(softnetBacklog, title, append(dropped, nonZero(dropFigure(e, "CPU_BACKLOG"))...)...))
	}
	if len(squeezed) > 0 && e.Machine {
		findings = append(findings, finding(softnetSqueezed, "The kernel runs out of time for arriving packets",
			squeezed...))
	}
	return findings
}

// A core is busy with packets from busyShare of its time on, if the others average at most idleShare.
const busyShare, idleShare = 0.9, 0.5

// checkCores looks for one core that does work which several cores could share.
func checkCores(e *evidence.Evidence) []Finding {
	cpus := e.CoreWork()
	share := func(c evidence.CPU) float64 { return c.Softirq / max(c.Total, 0.01) }
	if len(cpus) < 2 || !e.Machine {
		return nil
	}
	slices.SortFunc(cpus, func(a, b evidence.CPU) int { return cmp.Compare(share(b), share(a)) })
	busiest := cpus[0]
	var rest float64
	for _, c := range cpus[1:] {
		rest += share(c) / float64(len(cpus)-1)
	}
	if share(busiest) < busyShare || rest > idleShare {
		return nil
	}
	return []Finding{finding(busyCore, fmt.Sprintf("Core %d is busy with packets alone", busiest.Index),
		Figure{Name: "softirq", On: fmt.Sprintf("core %d", busiest.Index), Value: 100 * share(busiest),
			Unit: "percent of its time"},
		Figure{Name: "softirq", On: "the other cores", Value: 100 * rest, Unit: "percent of their time"})}
}
