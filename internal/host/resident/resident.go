// SPDX-License-Identifier: Apache-2.0

// Package resident keeps a daemon's memory small: it lowers the threshold of garbage collection, and returns memory to
// the kernel that only a start or a large change needed.
package resident

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// gcPercent is GOGC. Go's default of 100 saves no noticeable time in a daemon that allocates little.
	gcPercent = 50
	// debounce is the time without changes after which memory is returned: a following change would allocate it again.
	debounce = 2 * time.Second
)

// SetGCPercent bounds the garbage of this process, unless the environment does by GOGC.
func SetGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// Releaser returns memory to the kernel after changes.
type Releaser struct {
	changed chan struct{}
	release func() error
}

// NewReleaser returns a Releaser for this process's memory.
func NewReleaser() *Releaser { return &Releaser{make(chan struct{}, 1), Release} }

// Changed notifies the Releaser of a start or a change. It does not block.
func (k *Releaser) Changed() {
	select {
	case k.changed <- struct{}{}:
	default: // a notification is pending
	}
}

// Run returns memory after changes, until ctx ends. It passes errors to failed: they only cost memory.
func (k *Releaser) Run(ctx context.Context, failed func(error)) {
	timer := time.NewTimer(debounce)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
			timer.Reset(debounce)
		case <-timer.C:
			if err := k.release(); err != nil {
				failed(err)
			}
		}
	}
}

// Release collects garbage and returns its memory to the kernel, and drops the clean pages of mapped files, such as the
// program's: needed pages are mapped again from the page cache, and most were needed for the start only.
func Release() error {
	debug.FreeOSMemory()
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading which pages of the program are in memory: %v", err)
	}
	defer maps.Close()
	areas, err := cleanFileMappings(maps)
	if err != nil {
		return fmt.Errorf("reading which pages of the program are in memory: %v", err)
	}
	for _, a := range areas {
		if _, _, number := unix.Syscall(unix.SYS_MADVISE, a.from, a.to-a.from, unix.MADV_DONTNEED); number != 0 {
			err = errors.Join(err, fmt.Errorf("giving back the pages of the program at %x: %v", a.from, number))
		}
	}
	return err
}

// addressRange is a range of addresses.
type addressRange struct{ from, to uintptr }

// keptFlags are flags of mappings (VmFlags in proc_pid_smaps(5)) whose pages the kernel does not drop: it returns
// EINVAL. "pf" maps physical memory without pages, such as the kernel's BTF in /sys/kernel/btf since Linux 6.16, which
// is mapped when eBPF programs are loaded. "lo" is locked, and "ht" has huge pages.
var keptFlags = []string{"pf", "lo", "ht"}

// cleanFileMappings returns the private, read-only mappings of files without anonymous pages whose pages the kernel
// drops, from a list in the format of /proc/PID/smaps (proc_pid_smaps(5)). An anonymous page has data that is in no
// file: a relocated address, or a debugger's breakpoint.
func cleanFileMappings(smaps io.Reader) (areas []addressRange, err error) {
	var at addressRange
	candidate := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &at.from, &at.to); err != nil {
				return nil, fmt.Errorf("%q: %v", lines.Text(), err)
			}
			candidate = strings.HasPrefix(fields[1], "r-") && strings.HasSuffix(fields[1], "p") && fields[4] != "0"
		case len(fields) == 3 && fields[0] == "Anonymous:":
			candidate = candidate && fields[1] == "0"
		case candidate && len(fields) > 0 && fields[0] == "VmFlags:": // the last line of a mapping
			if !slices.ContainsFunc(keptFlags, func(flag string) bool { return slices.Contains(fields, flag) }) {
				areas = append(areas, at)
			}
			candidate = false
		}
	}
	return areas, lines.Err()
}
