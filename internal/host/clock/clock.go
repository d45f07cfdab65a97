// SPDX-License-Identifier: Apache-2.0

// Package clock converts times between processes. Within a process, Go's times have a monotonic clock reading besides
// the wall clock time, so that a step of the wall clock (by NTP's first answer after a boot, for example) does not
// matter. A file has wall clock times only: in the next process, a deadline or the age of a verdict would be wrong by
// the size of any step in between. Therefore a [Reading] is saved with such times, and used to convert them.
package clock

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Reading is the time of the machine's clocks at a moment. The zero value converts nothing.
type Reading struct {
	Wall time.Time `json:"wall"`
	// Boot is the kernel's boot_id, and Up the time since that boot, the machine's sleep included
	// (CLOCK_BOOTTIME): the wall clock's settings do not change it.
	Boot string        `json:"boot"`
	Up   time.Duration `json:"up_ns"`
	// now is the moment as a time of this process.
	now time.Time
}

// Read reads the clocks.
func Read() Reading {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil { // supported since Linux 2.6.39
		panic(err)
	}
	return At(time.Now(), bootID(), time.Duration(up.Nano()))
}

// At returns the reading of a moment of this process.
func At(now time.Time, boot string, up time.Duration) Reading {
	return Reading{Wall: now.Round(0), Boot: boot, Up: up, now: now}
}

var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // only the wall clock is known
	}
	return strings.TrimSpace(string(id))
})

// ToWall returns a time of this process by the wall clock of the reading, for a file that also has the reading.
func (r Reading) ToWall(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return r.Wall.Add(t.Sub(r.now))
}

// FromWall returns a time in a file as a time of this process, where r is the reading in the file and now the present
// one. After another boot, only the wall clock is used.
func (r Reading) FromWall(t time.Time, now Reading) time.Time {
	if t.IsZero() || r.Boot == "" || r.Boot != now.Boot {
		return t
	}
	return now.now.Add(r.Up - now.Up).Add(t.Sub(r.Wall))
}
