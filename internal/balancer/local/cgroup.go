// SPDX-License-Identifier: Apache-2.0

// Package local finds the control group of the clients on the balancer's own host.
package local

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors that a caller may test for.
var (
	// ErrNoCgroup2: the host has no cgroup v2 hierarchy mounted.
	ErrNoCgroup2 = errors.New("no cgroup v2 hierarchy is mounted")
	// ErrNotCgroup2: a path is no directory of a cgroup v2 hierarchy.
	ErrNotCgroup2 = errors.New("not a directory of a cgroup v2 hierarchy")
)

// mountInfo is the kernel's list of the mounts that this process sees.
const mountInfo = "/proc/self/mountinfo"

// Cgroup returns the directory of the control group at a path or, with no path, of the root of the
// host's cgroup v2 hierarchy. Errors: ErrNoCgroup2, ErrNotCgroup2.
func Cgroup(path string) (string, error) {
	if path != "" {
		return path, checkCgroup(path)
	}
	file, err := os.Open(mountInfo)
	if err != nil {
		return "", fmt.Errorf("looking for the cgroup v2 hierarchy: %w", err)
	}
	defer file.Close()
	path, err = hierarchyRoot(file)
	if err != nil {
		return "", fmt.Errorf(
			"looking in %s: %w: mount one (`mount -t cgroup2 none /sys/fs/cgroup`), or boot with systemd.unified_cgroup_hierarchy=1", mountInfo, err)
	}
	return path, checkCgroup(path)
}

// checkCgroup returns an error if a path is not a control group.
func checkCgroup(path string) error {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrNotCgroup2, err)
	}
	var system unix.Statfs_t
	if err := unix.Statfs(path, &system); err != nil {
		return fmt.Errorf("%s: asking for its file system: %w", path, err)
	}
	if int64(system.Type) != unix.CGROUP2_SUPER_MAGIC || file.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("%s: %w: `findmnt -t cgroup2` shows where one is mounted", path, ErrNotCgroup2)
	}
	return nil
}

// hierarchyRoot finds where the root of the cgroup v2 hierarchy is mounted, in the format of proc_pid_mountinfo(5).
// Of several mounts the first that shows the root counts.
func hierarchyRoot(mounts io.Reader) (string, error) {
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if system, _, _ := strings.Cut(after, " "); system != "cgroup2" || len(fields) < 5 || fields[3] != "/" {
			continue
		}
		return unescape.Replace(fields[4]), nil
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", ErrNoCgroup2
}

// unescape undoes the kernel's escapes of characters that would end a field.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
