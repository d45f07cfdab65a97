// SPDX-License-Identifier: Apache-2.0

// Package rcu waits for programs that are running. A program that processes a packet, or a call on a socket, is an RCU
// reader: after a grace period, no reader from before its begin is left, and memory that was unreachable at its begin
// is unused.
package rcu

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// fallbackWait is how long Wait waits where the kernel has no call for waiting for a grace period; no packet takes that
// long.
const fallbackWait = time.Second

// The kernel's answers; tests replace them.
var (
	callBarrier    = membarrier
	hasOneCPU      = isUniprocessor
	replaceElement = replaceMapElement
)

// Wait returns when all programs that are running now have ended.
func Wait() {
	// With one CPU online, membarrier returns at once: a packet is never preempted there. But a program at a socket
	// runs in the thread that made the call, which a preemptible kernel may have preempted.
	if !hasOneCPU() && callBarrier() == nil {
		return
	}
	if replaceElement() == nil {
		return
	}
	<-time.After(fallbackWait)
}

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of <linux/membarrier.h>: it returns after all processors have passed
// through a quiescent state.
const membarrierGlobal = 1

// membarrier waits for a grace period, if several CPUs are online. The kernel may lack the call, and rejects it with
// nohz_full.
func membarrier() error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// isUniprocessor reports whether one CPU is online, or that is unknown.
func isUniprocessor() bool {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return true
	}
	online, err := cpuset.Parse(strings.TrimSpace(string(text)))
	return err != nil || online.Size() <= 1
}

// replaceMapElement waits for a grace period by replacing an element of a map of maps: the kernel returns once no
// program uses the previous one (kernel/bpf/syscall.c, maybe_wait_bpf_programs).
func replaceMapElement() error {
	replace, err := mapOfMaps()
	if err != nil {
		return err
	}
	return replace()
}

// mapOfMaps makes a map of maps, and returns the function that replaces its element.
var mapOfMaps = sync.OnceValues(func() (replace func() error, err error) {
	spec := ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(&spec)
	if err != nil {
		return nil, fmt.Errorf("making a map to wait for programs by: %w", err)
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		InnerMap: &spec})
	if err != nil {
		inner.Close()
		return nil, fmt.Errorf("making a map of maps to wait for programs by: %w", err)
	}
	return func() error { return outer.Put(uint32(0), inner) }, nil
})
