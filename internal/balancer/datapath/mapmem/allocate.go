// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How often the kernel is asked before a lack of memory is believed, and the pause after the first time; each further
// pause is twice as long. All of them together take half a second.
const (
	attempts   = 10
	firstPause = time.Millisecond
)

// Allocate calls do, for which the kernel allocates memory without waiting for any: again, if it had none at hand. For
// an element of a map it reclaims none (GFP_NOWAIT), and fails with ENOMEM where caches have used up the memory of the
// machine or of the control group, as they usually do. For a timer, since Linux 6.18, it fails where another CPU holds
// the allocator's lock (kmalloc_nolock).
func Allocate(do func() error) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := do()
		if attempt == attempts || !errors.Is(err, unix.ENOMEM) {
			return err
		}
		reclaim()
		<-time.After(pause)
		pause *= 2
	}
}

// reclaimed is how much memory reclaim takes: enough for a thousand prefixes.
const reclaimed = 256 << 10

// reclaim takes memory and gives it back: a page fault, unlike those allocations, waits until the kernel has reclaimed
// some. Tests replace it.
var reclaim = func() {
	memory, err := unix.Mmap(-1, 0, reclaimed, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return // the next attempt shows whether there is memory
	}
	for at := 0; at < len(memory); at += os.Getpagesize() {
		memory[at] = 1
	}
	_ = unix.Munmap(memory)
}
