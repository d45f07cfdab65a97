// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Pin ties all processes that the host has now, and what they start from now on,
// to the given CPUs, whatever they chose themselves; none frees them. Processes
// that come later are not tied.
func (h *Host) Pin(cpus ...int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if len(cpus) == 0 {
		for cpu := range runtime.NumCPU() {
			set.Set(cpu)
		}
	}
	procs, err := procfs.AllProcs()
	if err != nil {
		return fmt.Errorf("find the processes of %s: %w", h.Name, err)
	}
	for _, p := range procs {
		if inode, err := netnsOf(p.PID); p.PID == os.Getpid() || err != nil || inode != h.inode {
			continue
		}
		if err := pinThreads(p.PID, &set); err != nil {
			return fmt.Errorf("tie process %d of %s to CPUs %v: %w", p.PID, h.Name, cpus, err)
		}
	}
	return nil
}

// pinThreads ties the threads of a process. A thread may start another before it
// is tied: it is looked again until there is nothing new.
func pinThreads(pid int, set *unix.CPUSet) error {
	tied := map[int]bool{}
	for {
		before := len(tied)
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return nil // it has ended
		}
		for _, t := range threads {
			if tied[t.PID] {
				continue
			}
			if err := unix.SchedSetaffinity(t.PID, set); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			tied[t.PID] = true
		}
		if len(tied) == before {
			return nil
		}
	}
}
