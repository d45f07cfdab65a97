// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Pin keeps the calling thread on one CPU, so that caches stay warm, and the values of per-CPU maps are those of one
// CPU.
func Pin() error {
	var allowed, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("asking which CPUs may be used: %w", err)
	}
	// The last CPU: interrupts tend to go to the first.
	cpu := 0
	for i := range len(allowed) * 64 {
		if allowed.IsSet(i) {
			cpu = i
		}
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning the measurement to CPU %d: %w", cpu, err)
	}
	return nil
}

// errUnfinished means that f was left by runtime.Goexit, as by a failed test.
var errUnfinished = errors.New("the measurement ended early")

// Pinned runs f on a pinned thread of its own. The thread is used for nothing afterwards.
func Pinned(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := errUnfinished
		defer func() { result <- err }()
		if err = Pin(); err == nil {
			err = f()
		}
	}()
	return <-result
}
