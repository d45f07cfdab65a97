// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// ErrNotInstalled means that a program is not installed on this machine.
var ErrNotInstalled = errors.New("not installed")

// versionLine matches the version in the output of programs, such as dnsperf, that print other numbers, too.
var versionLine = regexp.MustCompile(`(?m)^Version (\S+)`)

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+[^\s,)]*`)

// versionTimeout is how long a program may take to print its version.
const versionTimeout = 5 * time.Second

// Version returns a program's version: the first number with a dot in its output when it is called with flag. (wrk
// counts the flag as wrong usage and exits with 1, so the exit status means nothing.) Its error wraps ErrNotInstalled.
func Version(ctx context.Context, program, flag string) (string, error) {
	return VersionOf(ctx, program, flag, "run `make deps`, or install it from your distribution")
}

// VersionOf is Version for a program that is not installed as a Debian package, with a hint on how to install it.
func VersionOf(ctx context.Context, program, flag, hint string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is %w: %s", program, ErrNotInstalled, hint)
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	output, _ := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if line := versionLine.FindSubmatch(output); line != nil {
		return string(line[1]), nil
	}
	if version := versionNumber.FindString(string(output)); version != "" {
		return version, nil
	}
	first, _, _ := strings.Cut(string(output), "\n")
	return "", fmt.Errorf("asking %s for its version: it answered %q", path, first)
}
