// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/cpus"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// Pin pins all processes that the host has now, and processes that those start later, to the given CPUs, whatever
// affinity they chose themselves; without CPUs, to all that this process was allowed when it started. Other processes
// that start later are not pinned.
func (h *Host) Pin(to ...int) error {
	var set unix.CPUSet
	if len(to) == 0 {
		to = cpus.Allowed()
	}
	for _, cpu := range to {
		set.Set(cpu)
	}
	if err := h.eachThread(func(id int) error { return unix.SchedSetaffinity(id, &set) }); err != nil {
		return fmt.Errorf("tie the processes of %s to CPUs %v: %w", h.Name, to, err)
	}
	return nil
}

// Renice gives all processes that the host has now, and processes that those start later, a nice value, from -20, which
// has priority over the machine's other processes, to 19.
func (h *Host) Renice(nice int) error {
	err := h.eachThread(func(id int) error { return unix.Setpriority(unix.PRIO_PROCESS, id, nice) })
	if err != nil {
		return fmt.Errorf("give the processes of %s the nice value %d: %w", h.Name, nice, err)
	}
	return nil
}

// eachThread calls set for every thread of the host's processes.
func (h *Host) eachThread(set func(id int) error) error {
	procs, err := procfs.AllProcs()
	if err != nil {
		return err
	}
	for _, p := range procs {
		if inode, err := netns.OfProcess(p.PID); p.PID == os.Getpid() || err != nil || inode != h.inode {
			continue
		}
		if err := setThreads(p.PID, set); err != nil {
			return fmt.Errorf("process %d: %w", p.PID, err)
		}
	}
	return nil
}

// setThreads calls set for the threads of a process. A thread may start another before it is set: the threads are
// listed again until there is no new one.
func setThreads(pid int, set func(id int) error) error {
	done := map[int]bool{}
	for {
		before := len(done)
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return nil // it has ended
		}
		for _, t := range threads {
			if done[t.PID] {
				continue
			}
			if err := set(t.PID); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			done[t.PID] = true
		}
		if len(done) == before {
			return nil
		}
	}
}
