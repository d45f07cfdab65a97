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

// MachineStat has the times and counts of a machine, of which hosts are or are a part, since it was started.
type MachineStat struct {
	// Boot is the kernel's number of this start of the machine (boot_id), by which
	// hosts that share it are known.
	Boot  string
	Cores int
	// Of the time of all its cores: programs' (User), the kernel's for them (System), the
	// kernel's packet work and what else comes by interrupt (Softirq), and without work,
	// waiting for disks included (Idle).
	User, System, Softirq, Idle time.Duration
	ContextSwitches             uint64
	// Hosts are the names of those on it.
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
