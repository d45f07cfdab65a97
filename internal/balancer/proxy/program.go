// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// program is an installed HAProxy.
type program struct {
	path, version string
	// configured is the configured path by which it was found.
	configured string
	// modified is the file's modification time, by which a replaced program is noticed.
	modified time.Time
}

// programPaths are searched for HAProxy if none is configured.
var programPaths = []string{"haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"}

// installHint says how to get HAProxy.
const installHint = "install HAProxy " + MinVersion +
	" or newer (on Debian 12 and newer: apt-get install haproxy; its own service is not needed: systemctl disable --now haproxy)"

// findProgram returns the program at a path, or where no path is given the one that is installed.
func findProgram(ctx context.Context, configured string) (program, error) {
	candidates := programPaths
	if configured != "" {
		candidates = []string{configured}
	}
	for _, name := range candidates {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		return queryVersion(ctx, path)
	}
	if configured != "" {
		return program{}, fmt.Errorf("%w: no program at %s; correct the path, or %s", ErrNoProgram, configured, installHint)
	}
	return program{}, fmt.Errorf("%w: it is neither in PATH nor in /usr/sbin; %s", ErrNoProgram, installHint)
}

// versions finds the version in the output of "haproxy -v".
var versions = regexp.MustCompile(`(?i)^HA-?Proxy version (\d+)\.(\d+)(\S*)`)

// queryVersion has the program print its version.
func queryVersion(ctx context.Context, path string) (program, error) {
	info, err := os.Stat(path)
	if err != nil {
		return program{}, fmt.Errorf("%w: %v", ErrNoProgram, err)
	}
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "-v").Output()
	if err != nil {
		return program{}, fmt.Errorf("%w: asking %s for its version: %v", ErrNoProgram, path, err)
	}
	version, err := readVersion(output)
	if err != nil {
		return program{}, fmt.Errorf("%s: %w", path, err)
	}
	return program{path: path, version: version, modified: info.ModTime()}, nil
}

// readVersion reads the version in the output of "haproxy -v", and refuses one that is too old.
func readVersion(output []byte) (string, error) {
	found := versions.FindSubmatch(bytes.TrimSpace(output))
	if found == nil {
		first, _, _ := bytes.Cut(output, []byte("\n"))
		return "", fmt.Errorf("%w: %q is no answer of HAProxy to -v", ErrNoProgram, first)
	}
	version := fmt.Sprintf("%s.%s%s", found[1], found[2], found[3])
	major, _ := strconv.Atoi(string(found[1]))
	minor, _ := strconv.Atoi(string(found[2]))
	if major < 2 || major == 2 && minor < 6 {
		return "", fmt.Errorf("%w: it is version %s; %s", ErrTooOld, version, installHint)
	}
	return version, nil
}

// isCurrent reports whether the program's file is the one that was asked for its version.
func (p program) isCurrent() bool {
	info, err := os.Stat(p.path)
	return err == nil && p.path != "" && info.ModTime().Equal(p.modified)
}

// keepProgram has a HAProxy that runs go on as the program that it is, whatever is configured: a reload executes that
// again, and to end it would break its connections.
func (e *engine) keepProgram(ctx context.Context, c *candidate, runs bool) {
	why := ""
	if runs && c.program.path != e.running.Program {
		why = fmt.Sprintf(
			"HAProxy goes on as %s, not as %s: a reload and a restart leave it running; stop and start the balancer (systemctl stop jeoul, systemctl start jeoul)",
			e.running.Program, c.program.path)
		var err error
		if c.program, err = queryVersion(ctx, e.running.Program); err != nil {
			c.program = program{path: e.running.Program, version: e.running.Version}
		}
	}
	e.updateState(func() { e.programProblem = why })
}

// environment returns this process's variables without those that HAProxy interprets, its own and systemd's.
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"}
}
