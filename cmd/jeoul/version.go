// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

type versionCmd struct{}

// Run prints the versions, a line each.
func (c *versionCmd) Run(context.Context) error {
	version, commit := build()
	fmt.Printf("jeoul   %s\ncommit  %s\ngo      %s %s/%s\nkernel  %s\n",
		version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, kernelRelease())
	return nil
}

// build returns the version of the program and the commit that it was built
// from, with "+dirty" where the source had changes; "unknown" where the Go
// toolchain has recorded none.
func build() (version, commit string) {
	version, commit = "unknown", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, commit
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	dirty := ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "+dirty"
		}
	}
	return version, commit + dirty
}

// kernelRelease is what `uname -r` prints.
func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
