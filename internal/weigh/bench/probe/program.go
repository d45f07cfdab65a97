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

// ErrNotInstalled means that a program is not on this machine.
var ErrNotInstalled = errors.New("not installed")

// versionLine matches the version of programs such as dnsperf that print other numbers, too.
var versionLine = regexp.MustCompile(`(?m)^Version (\S+)`)

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+[^\s,)]*`)

// versionBound is how long a program may take to answer about itself.
const versionBound = 5 * time.Second

// Version asks a program for its version: the first number with a dot in its output when called with flag. (wrk calls
// that wrong usage and exits with 1, so the exit status says nothing.) Its error wraps ErrNotInstalled.
func Version(ctx context.Context, program, flag string) (string, error) {
	return VersionOf(ctx, program, flag, "run `make deps`, or install it from your distribution")
}

// VersionOf is Version of a program that is not installed as a Debian package, with a hint on how to install it.
func VersionOf(ctx context.Context, program, flag, hint string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is %w: %s", program, ErrNotInstalled, hint)
	}
	ctx, cancel := context.WithTimeout(ctx, versionBound)
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
