// SPDX-License-Identifier: Apache-2.0

// Package measure reads the figures of a laboratory's hosts: CPU time, packet work included, counters and sockets of
// network namespaces, drops, and the machine below them.
package measure

import (
	"time"
)

// CPU is the CPU time that a host has used since its lab was built.
//
// Total counts every process in the host's namespace, by its CPU clock (nanoseconds, ended threads included), minus the
// packet work that ran on top of the processes (a kernel may have left it out of their clocks), plus the packet work
// for the host's devices, whichever process that ran on top of. A process that ended is not lost: a process started by
// Host.Start counts with the resource usage that the kernel reports at its end (microseconds), a child that was waited
// for counts in its parent (10 ms), and a process whose parent is outside of the lab counts with the time that it had
// used when CPU was last called. Work that Do runs in this process does not count, nor do softirqs other than those of
// packets (timers).
type CPU struct {
	Total time.Duration
	// Threads maps "comm/tid" to the time of one thread: a thread that uses a whole core is saturated, however idle the
	// others are. Up to one timer tick of a running thread may be missing. A process that ended keeps the entry of its
	// main thread; those of its other threads are gone. "softirq/INDEX" is the work for a device, if it has one queue,
	// which one core serves at a time.
	Threads map[string]time.Duration
}

// Sub returns the CPU time since an earlier reading. Threads that used none since then are left out.
func (c CPU) Sub(earlier CPU) CPU {
	d := CPU{Total: c.Total - earlier.Total, Threads: map[string]time.Duration{}}
	for name, t := range c.Threads {
		if used := t - earlier.Threads[name]; used > 0 {
			d.Threads[name] = used
		}
	}
	return d
}

// Busiest returns the thread with the most time; the empty name if none has any.
func (c CPU) Busiest() (thread string, used time.Duration) {
	for name, t := range c.Threads {
		if t > used || t == used && name < thread {
			thread, used = name, t
		}
	}
	return thread, used
}
