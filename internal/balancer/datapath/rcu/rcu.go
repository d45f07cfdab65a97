// SPDX-License-Identifier: Apache-2.0

// Package rcu waits for packets in processing. A program that processes a packet is an RCU reader: after a grace
// period, no reader from before its begin is left, and memory that was unreachable at its begin is unused.
package rcu

import (
	"time"

	"golang.org/x/sys/unix"
)

// fallbackWait is how long Wait waits where the kernel has no call for waiting for a grace period; no packet takes that
// long.
const fallbackWait = time.Second

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of <linux/membarrier.h>: it returns after all processors have passed
// through a quiescent state.
const membarrierGlobal = 1

// Wait returns when all packets that are being processed now have been processed.
func Wait() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		// The kernel lacks the call, or rejects it with nohz_full.
		<-time.After(fallbackWait)
	}
}
