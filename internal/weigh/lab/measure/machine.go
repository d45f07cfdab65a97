// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// MachineStat holds the times and counts of a machine since its start. Hosts are that machine or a part of it.
type MachineStat struct {
	// Boot is the kernel's ID of this start of the machine (boot_id), which is equal for hosts that share it.
	Boot  string
	Cores int
	// Of the time of all its cores: that of programs (User), of the kernel for them (System), of the kernel's packet
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
	all := stat.CPUTotal
	return MachineStat{
		Boot: strings.TrimSpace(string(boot)), Cores: runtime.NumCPU(), Hosts: hosts,
		User: spent(all.User + all.Nice), System: spent(all.System), Softirq: spent(all.SoftIRQ + all.IRQ),
		Idle:            spent(all.Idle + all.Iowait),
		ContextSwitches: stat.ContextSwitches,
	}, nil
}
