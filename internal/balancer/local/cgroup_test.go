// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestRoot(t *testing.T) {
	for name, test := range map[string]struct {
		mounts, want string
		err          error
	}{
		"unified": {"23 1 0:22 / / rw - ext4 /dev/vda rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup", nil},
		"hybrid": {"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
			"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified", nil},
		"a part of it, in a container": {"30 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n31 23 0:26 / /host/cgroup ro - cgroup2 cgroup rw\n", "/host/cgroup", nil},
		"a blank":                      {`30 23 0:26 / /my\040cgroup rw - cgroup2 none rw`, "/my cgroup", nil},
		"none": {"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "",
			ErrNoCgroup2},
		"not understood": {"32 31 - cgroup2\n", "", ErrNoCgroup2},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := hierarchyRoot(strings.NewReader(test.mounts)); got != test.want || !errors.Is(err,
				test.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestNotCgroup: a path that cannot be attached to is refused, with the reason.
func TestNotCgroup(t *testing.T) {
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing"), "/proc/self/mountinfo"} {
		if _, err := Cgroup(path); !errors.Is(err, ErrNotCgroup2) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
