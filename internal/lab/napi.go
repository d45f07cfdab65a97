// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// napiThread is the kernel thread of one receive queue of a device.
type napiThread struct {
	pid    int
	device string
	// number grows in the order in which the kernel made the queues.
	number int
}

// parseNAPI reads a kernel thread's name, "napi/DEVICE-NUMBER".
func parseNAPI(comm string) (t napiThread, ok bool) {
	name, ok := strings.CutPrefix(comm, "napi/")
	i := strings.LastIndexByte(name, '-')
	if !ok || i < 0 {
		return napiThread{}, false
	}
	number, err := strconv.Atoi(name[i+1:])
	return napiThread{device: name[:i], number: number}, err == nil
}

// napiThreads lists the threads of a lab's devices, which it knows by the ID in
// their names, ordered by device and queue.
func napiThreads(id string) ([]napiThread, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("look for the devices' threads: %w", err)
	}
	var threads []napiThread
	for _, p := range procs {
		comm, err := p.Comm()
		if err != nil {
			continue // it ended meanwhile
		}
		if t, ok := parseNAPI(comm); ok && strings.HasSuffix(t.device, deviceName("", id)) {
			t.pid = p.PID
			threads = append(threads, t)
		}
	}
	slices.SortFunc(threads, func(a, b napiThread) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.number, b.number))
	})
	return threads, nil
}

// ServeXDP readies the lab for a subject that sends from the balancer by XDP_TX,
// or takes that back.
//
// A veth queues 256 frames for its peer, and XDP_TX drops what finds the queue
// full: nothing holds it back, as a queueing discipline does for sockets and TC.
// So the balancer's queue and the queue behind it on the switch's port run on the
// same core, and the latter first: it empties after each of the balancer's
// batches of at most 64 frames. Other subjects are better off without, since
// their senders would be interrupted for each frame. An Unthreaded lab, whose
// queues empty in the sender's own softirq, needs nothing.
func (l *Lab) ServeXDP(on bool) error {
	threads, err := napiThreads(l.ID)
	if err != nil {
		return err
	}
	for _, t := range threads {
		var err error
		switch {
		case t.device != l.Balancer.Interface && t.device != l.Balancer.Port:
		case on:
			err = t.schedule(onCore(0), t.device == l.Balancer.Port)
		default:
			err = t.schedule(anyCore(), false)
		}
		if err != nil {
			return fmt.Errorf("schedule the thread of %s: %w", t.device, err)
		}
	}
	return nil
}

func onCore(n int) (set unix.CPUSet) {
	set.Set(n)
	return set
}

// anyCore is every core that there could be: the kernel leaves out those that
// there are not.
func anyCore() (set unix.CPUSet) {
	set.Fill()
	return set
}

// schedule says on which cores the thread may run, and whether it does so before
// all ordinary threads or among them.
func (t napiThread) schedule(cores unix.CPUSet, first bool) error {
	if err := unix.SchedSetaffinity(t.pid, &cores); err != nil {
		return fmt.Errorf("set its cores: %w", err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if first {
		attr.Policy, attr.Priority = unix.SCHED_FIFO, 1
	}
	if err := unix.SchedSetAttr(t.pid, &attr, 0); err != nil {
		return fmt.Errorf("set its priority: %w", err)
	}
	return nil
}
