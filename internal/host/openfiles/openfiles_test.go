// SPDX-License-Identifier: Apache-2.0

package openfiles

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRaise(t *testing.T) {
	before, err := readLimit()
	if err != nil {
		t.Fatal(err)
	}
	lower := unix.Rlimit{Cur: before.Max / 2, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	if err := Raise(); err != nil {
		t.Fatal(err)
	}
	most, err := Max()
	if err != nil || most != before.Max {
		t.Errorf("the process may have %d files (%v), want %d", most, err, before.Max)
	}
	out, err := exec.Command("sh", "-c", "ulimit -n").Output()
	if want := strconv.FormatUint(before.Max, 10); err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("a child may have %s files (%v), want %s", out, err, want)
	}
}
