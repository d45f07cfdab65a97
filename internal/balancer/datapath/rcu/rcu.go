// SPDX-License-Identifier: Apache-2.0

// Package rcu waits for packets that are on their way. A packet is an RCU reader: once a grace period has passed, none
// that began before can be left, and memory that could not be found any more when it began is unused.
package rcu

import (
	"time"

	"golang.org/x/sys/unix"
)

// fallbackWait is how long Wait waits where the kernel has no call for waiting for a grace period; no packet takes as
// long.
const fallbackWait = time.Second

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of <linux/membarrier.h>: on return, all
// processors have passed through a state in which they read nothing.
const membarrierGlobal = 1

// Wait returns when all packets that are on their way now have been processed.
func Wait() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		// The kernel lacks the call, or refuses it with nohz_full.
		<-time.After(fallbackWait)
	}
}
