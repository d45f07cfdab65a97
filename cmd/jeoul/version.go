// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
)

type versionCmd struct{}

// Run prints the versions, one per line.
func (c *versionCmd) Run(context.Context) error {
	version, commit := cmdkit.Build()
	fmt.Printf("jeoul   %s\ncommit  %s\ngo      %s %s/%s\nkernel  %s\n",
		version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, kernelRelease())
	return nil
}

// kernelRelease is the kernel's release, as `uname -r` prints it.
func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
