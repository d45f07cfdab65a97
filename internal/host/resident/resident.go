// SPDX-License-Identifier: Apache-2.0

// Package resident keeps a daemon's memory small: garbage is collected at a lower bound, and memory that only a start
// or a large change needed is given back to the kernel once it is over.
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
	// gcPercent is how much garbage may gather before it is collected, in per cent of the memory in use. Go's 100 saves
	// a daemon that allocates little nothing that is worth that memory.
	gcPercent = 50
	// debounce is how long there must be no change before memory is given back: a change that follows would take it
	// again.
	debounce = 2 * time.Second
)

// SetGCPercent bounds the garbage of this process, unless the environment does by GOGC.
func SetGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// Releaser gives memory back when changes are over.
type Releaser struct {
	changed chan struct{}
	release func() error
}

// NewReleaser returns a Releaser that gives back this process's memory.
func NewReleaser() *Releaser { return &Releaser{make(chan struct{}, 1), Release} }

// Changed says that a start or a change has taken memory that is not needed any more. It does not wait.
func (k *Releaser) Changed() {
	select {
	case k.changed <- struct{}{}:
	default: // said, and not heard yet
	}
}

// Run gives memory back after changes, until ctx ends. An error is handed to failed: nothing is lost but memory.
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

// Release collects garbage and gives its memory back, and drops the pages of files that this process has mapped and
// not written to, such as the program's: those that are needed come back from the page cache, and most were for the
// start only.
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

// keptFlags are flags of mappings (VmFlags in proc_pid_smaps(5)) whose pages the kernel does not give up, but answers
// EINVAL: "pf" has no pages, but physical memory, as the kernel's BTF in /sys/kernel/btf since Linux 6.16, which is
// mapped when eBPF programs are loaded; "lo" is locked; "ht" has huge pages.
var keptFlags = []string{"pf", "lo", "ht"}

// cleanFileMappings returns where files are mapped privately and read-only, no page is this process's own, and the
// kernel gives pages up, of a list as /proc/PID/smaps has it (proc_pid_smaps(5)). A page of its own holds data that is
// nowhere else: a relocated address, or a debugger's breakpoint.
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
