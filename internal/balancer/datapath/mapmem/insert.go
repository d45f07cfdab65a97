// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How often an insertion is attempted before a lack of memory is believed, and the pause after the first attempt; each
// further pause is twice as long. All of them together take half a second.
const (
	insertAttempts   = 10
	insertFirstPause = time.Millisecond
)

// Insert calls insert, which inserts an element into a map that allocates memory for it: again, if the kernel had no
// memory at hand. It allocates for maps without reclaiming any (GFP_NOWAIT), so that an insertion fails with ENOMEM
// where caches have used up the memory of the machine or of the control group, as they usually do.
func Insert(insert func() error) error {
	pause := insertFirstPause
	for attempt := 1; ; attempt++ {
		err := insert()
		if attempt == insertAttempts || !errors.Is(err, unix.ENOMEM) {
			return err
		}
		reclaim()
		<-time.After(pause)
		pause *= 2
	}
}

// reclaimed is how much memory reclaim takes: enough for a thousand prefixes.
const reclaimed = 256 << 10

// reclaim takes memory and gives it back: a page fault, unlike an insertion, waits until the kernel has reclaimed some.
// Tests replace it.
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
