// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

func readCPUs() ([]evidence.CPU, error) {
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
	var cpus []evidence.CPU
	for _, s := range softnet {
		c := evidence.CPU{Index: int(s.Index), Processed: s.Processed, Dropped: s.Dropped, Squeezed: s.TimeSqueezed}
		if t, known := stat.CPU[int64(s.Index)]; known {
			c.Softirq = t.SoftIRQ
			c.Total = t.User + t.Nice + t.System + t.Idle + t.Iowait + t.IRQ + t.SoftIRQ + t.Steal
		}
		cpus = append(cpus, c)
	}
	slices.SortFunc(cpus, func(a, b evidence.CPU) int { return cmp.Compare(a.Index, b.Index) })
	return cpus, nil
}
