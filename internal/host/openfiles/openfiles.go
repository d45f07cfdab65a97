// SPDX-License-Identifier: Apache-2.0

// Package openfiles reads and raises the limit of open files (RLIMIT_NOFILE) of this process.
package openfiles

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Max returns the number of file descriptors that the process may have once its soft limit is raised.
func Max() (uint64, error) {
	limit, err := readLimit()
	return limit.Max, err
}

// Raise raises the soft limit to the hard limit, for this process and all processes that it starts. (Go's runtime does
// so for itself, but gives its children the limit that it was started with.)
func Raise() error {
	limit, err := readLimit()
	if err != nil {
		return err
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raising the limit of open files to %d: %w", limit.Max, err)
	}
	return nil
}

func readLimit() (limit unix.Rlimit, err error) {
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return limit, fmt.Errorf("reading the limit of open files: %w", err)
	}
	return limit, nil
}
