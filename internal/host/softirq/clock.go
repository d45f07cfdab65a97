// SPDX-License-Identifier: Apache-2.0

package softirq

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
	"github.com/prometheus/procfs"
)

// clockLeavesOut reports whether the running kernel's clocks of processes leave softirqs out.
func clockLeavesOut() (bool, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false, err
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return false, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return false, err
	}
	return leavesOut(kernel, stat.CPUTotal)
}

// leavesOut reports whether a kernel accounts interrupts by themselves, and not to the processes that they interrupt:
// CONFIG_IRQ_TIME_ACCOUNTING, for which it has a structure. That may be off at run time (tsc=noirqtime, an unstable
// TSC). Then there is no time of hard interrupts in /proc/stat: a timer tick, which is one itself, sees no other.
func leavesOut(kernel *btf.Spec, used procfs.CPUStat) (bool, error) {
	_, err := kernel.AnyTypeByName("irqtime")
	if errors.Is(err, btf.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find the kernel's type irqtime: %w", err)
	}
	return used.IRQ > 0, nil
}
