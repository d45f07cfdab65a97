// SPDX-License-Identifier: Apache-2.0

package memleft

import (
	"testing"
	"testing/fstest"
)

func TestMemoryLeft(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const meminfo = "MemTotal: 8000 kB\nMemAvailable:    4000 kB\n"
	for _, c := range []struct {
		name   string
		files  fstest.MapFS
		want   uint64
		source string
	}{
		{"nothing", fstest.MapFS{}, 0, ""},
		{"no groups", fstest.MapFS{"proc/meminfo": file(meminfo)}, 4000 << 10, "MemAvailable of /proc/meminfo"},
		{"version 2, the one above is tighter", fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/b/memory.current": file("900000\n"),
			"sys/fs/cgroup/a/memory.max": file("2000000\n"), "sys/fs/cgroup/a/memory.current": file("1000000\n"),
			"sys/fs/cgroup/a/memory.stat": file("anon 5\ninactive_file 300000\n"),
		}, 1300000, "/sys/fs/cgroup/a/memory.max"},
		{"version 1", fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("8:pids:/\n4:memory:/x\n0::/\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("1000000\n"),
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes": file("1200000\n"),
		}, 0, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"},
		{"a limit that is none", fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("4:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
			"sys/fs/cgroup/memory/memory.usage_in_bytes": file("5\n"),
		}, 4000 << 10, "MemAvailable of /proc/meminfo"},
		{"in a container", fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/system.slice/x\n"),
			"sys/fs/cgroup/memory.max": file("3000000\n"), "sys/fs/cgroup/memory.current": file("1000000\n"),
		}, 2000000, "/sys/fs/cgroup/memory.max"},
	} {
		if got := Read(c.files); got.Bytes != c.want || got.Source != c.source || got.Known != (c.source != "") {
			t.Errorf("%s: %+v, want %d by %q", c.name, got, c.want, c.source)
		}
	}
}
