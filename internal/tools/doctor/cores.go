// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/prometheus/procfs"
)

// CPU is the work of one core since the machine was started; of the whole machine.
type CPU struct {
	Index int `json:"index"`
	// Processed, Dropped and Squeezed are of /proc/net/softnet_stat: packets taken,
	// packets for which its queue had no room, and how often it stopped with packets
	// left. The kernel counts them in 32 bits.
	Processed uint32 `json:"processed"`
	Dropped   uint32 `json:"dropped"`
	Squeezed  uint32 `json:"squeezed"`
	// Softirq and Total are seconds; the kernel's packet work is in the first.
	Softirq float64 `json:"softirq"`
	Total   float64 `json:"total"`
}

func readCPUs() ([]CPU, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	softnet, err := fs.NetSoftnetStat()
	if err != nil {
		return nil, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return nil, err
	}
	var cpus []CPU
	for _, s := range softnet {
		c := CPU{Index: int(s.Index), Processed: s.Processed, Dropped: s.Dropped, Squeezed: s.TimeSqueezed}
		if t, known := stat.CPU[int64(s.Index)]; known {
			c.Softirq = t.SoftIRQ
			c.Total = t.User + t.Nice + t.System + t.Idle + t.Iowait + t.IRQ + t.SoftIRQ + t.Steal
		}
		cpus = append(cpus, c)
	}
	slices.SortFunc(cpus, func(a, b CPU) int { return cmp.Compare(a.Index, b.Index) })
	return cpus, nil
}

// during returns the cores' work between the two readings; those that came or went meanwhile are left out.
func (e *Evidence) during() (cpus []CPU) {
	for _, after := range e.After.CPUs {
		i := slices.IndexFunc(e.Before.CPUs, func(c CPU) bool { return c.Index == after.Index })
		if i < 0 {
			continue
		}
		before := e.Before.CPUs[i]
		cpus = append(cpus, CPU{Index: after.Index, Processed: after.Processed - before.Processed,
			Dropped: after.Dropped - before.Dropped, Squeezed: after.Squeezed - before.Squeezed,
			Softirq: after.Softirq - before.Softirq, Total: after.Total - before.Total})
	}
	return cpus
}

// squeezesPerSecond is how often a core may stop early without a word.
const squeezesPerSecond = 100

// judgeSoftnet takes the queues of the cores. Their counters are the machine's: a
// container's doctor counts them only where the kernel has told of a drop of its own.
func judgeSoftnet(e *Evidence) (findings []Finding) {
	own, _ := e.dropped("CPU_BACKLOG")
	var dropped, squeezed []Figure
	for _, c := range e.during() {
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
			finding(softnetBacklog, title, append(dropped, seen(e.dropFigure("CPU_BACKLOG"))...)...))
	}
	if len(squeezed) > 0 && e.Machine {
		findings = append(findings, finding(softnetSqueezed, "The kernel runs out of time for arriving packets",
			squeezed...))
	}
	return findings
}

// A core is busy with packets from this share of its time on, if the others have at
// most that.
const busyShare, idleShare = 0.9, 0.5

// judgeCores looks for one core that does the work that several could share.
func judgeCores(e *Evidence) []Finding {
	cpus := e.during()
	share := func(c CPU) float64 { return c.Softirq / max(c.Total, 0.01) }
	if len(cpus) < 2 || !e.Machine {
		return nil
	}
	slices.SortFunc(cpus, func(a, b CPU) int { return cmp.Compare(share(b), share(a)) })
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
