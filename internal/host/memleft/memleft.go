// SPDX-License-Identifier: Apache-2.0

package memleft

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Available is the amount of memory that may still be allocated, in bytes, and the limit that determines it.
type Available struct {
	Bytes uint64
	// Source names the file with the limit.
	Source string
	// Known is false if no limit could be read.
	Known bool
}

// lower returns the lower of two limits.
func (m Available) lower(o Available) Available {
	if !m.Known || o.Known && o.Bytes < m.Bytes {
		return o
	}
	return m
}

// Read returns how much of the machine's memory is available within the limits of this process's control groups. BPF
// maps are charged to them (Linux 5.11 and later).
func Read(root fs.FS) Available {
	var limit Available
	if available, ok := readField(root, "proc/meminfo", "MemAvailable:"); ok {
		limit = Available{available << 10, "MemAvailable of /proc/meminfo", true}
	}
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			limit = limit.lower(cgroupAvailable(root, "sys/fs/cgroup", parts[2], "memory.max", "memory.current",
				"inactive_file"))
		case parts[1] == "memory":
			limit = limit.lower(cgroupAvailable(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes",
				"memory.usage_in_bytes", "total_inactive_file"))
		}
	}
	return limit
}

// cgroupAvailable returns the memory that a control group and its ancestors may still allocate. In a container their
// files may be in the place of the root's.
func cgroupAvailable(root fs.FS, mount, group, limit, usage, cache string) (available Available) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		dir := path.Join(mount, at)
		max, ok := readBytes(root, path.Join(dir, limit))
		used, readable := readBytes(root, path.Join(dir, usage))
		if ok && readable {
			// The inactive page cache is reclaimable.
			copies, _ := readField(root, path.Join(dir, "memory.stat"), cache)
			used -= min(copies, used)
			available = available.lower(Available{max - min(used, max), "/" + path.Join(dir, limit), true})
		}
		if at == "/" {
			return available
		}
	}
}

// readBytes reads a file with a number of bytes; "max" means no limit.
func readBytes(root fs.FS, name string) (uint64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// readField reads the number after a name at the beginning of a line.
func readField(root fs.FS, file, name string) (uint64, bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) >= 2 && words[0] == name {
			n, err := strconv.ParseUint(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// Usable returns the number of bytes that may be allocated.
func (m Available) Usable() uint64 {
	return m.Bytes - min(max(m.Bytes/Margin, minMargin), m.Bytes)
}

// The part of the available memory that is reserved: the kernel needs some for packets, and the process for changes.
const (
	// Margin is the divisor: one part of that many is reserved.
	Margin    = 8
	minMargin = 64 << 20
)
