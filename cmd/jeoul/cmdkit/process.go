// SPDX-License-Identifier: Apache-2.0

package cmdkit

import (
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Build returns the version of the program and the commit that it was built from, with "+dirty" where the source had
// changes; "unknown" where the Go toolchain has recorded none.
func Build() (version, commit string) {
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

// Interrupted is the error of an interrupted run, with the exit status for a shell.
type Interrupted struct{ Err error }

// Error returns the text of the error that the interruption caused.
func (i Interrupted) Error() string { return i.Err.Error() }

// ExitCode returns 128 plus the number of SIGINT, as shells do.
func (Interrupted) ExitCode() int { return 128 + int(unix.SIGINT) }
