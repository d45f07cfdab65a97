// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/internal/host/cpus"
)

// MachineStat holds the times and counts of a machine since its start. Hosts are that machine or a part of it.
type MachineStat struct {
	// Boot is the kernel's ID of this start of the machine (boot_id), which is equal for hosts that share it.
	Boot string
	// Cores are those that the process may use (taskset, a cpuset, a container): the laboratory's programs run on no
	// others.
	Cores int
	// Of the time of these cores: that of programs (User), of the kernel for them (System), of the kernel's packet
	// work and other interrupt work (Softirq), and without work, waiting for disks included (Idle).
	User, System, Softirq, Idle time.Duration
	ContextSwitches             uint64
	// Hosts are the names of the hosts on the machine.
	Hosts []string
}

// ReadMachine reads the machine that this process runs on.
func ReadMachine(hosts ...string) (MachineStat, error) {
	fail := func(err error) (MachineStat, error) {
		return MachineStat{}, fmt.Errorf("reading the machine's CPU times: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fail(err)
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return fail(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return fail(err)
	}
	spent := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	allowed := cpus.Allowed()
	all := timesOf(stat, allowed)
	return MachineStat{
		Boot: strings.TrimSpace(string(boot)), Cores: len(allowed), Hosts: hosts,
		User: spent(all.User + all.Nice), System: spent(all.System), Softirq: spent(all.SoftIRQ + all.IRQ),
		Idle:            spent(all.Idle + all.Iowait),
		ContextSwitches: stat.ContextSwitches,
	}, nil
}

// timesOf adds up the times of some CPUs. The kernel's own sum is of all CPUs, whatever the process may use.
func timesOf(stat procfs.Stat, numbers []int) (sum procfs.CPUStat) {
	for _, cpu := range numbers {
		c := stat.CPU[int64(cpu)]
		sum.User, sum.Nice, sum.System = sum.User+c.User, sum.Nice+c.Nice, sum.System+c.System
		sum.IRQ, sum.SoftIRQ = sum.IRQ+c.IRQ, sum.SoftIRQ+c.SoftIRQ
		sum.Idle, sum.Iowait = sum.Idle+c.Idle, sum.Iowait+c.Iowait
	}
	return sum
}
