// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// TestAllowed: a thread that may use the last CPU only has that one, by its own number.
func TestAllowed(t *testing.T) {
	all := Allowed()
	if len(all) != runtime.NumCPU() || !slices.IsSorted(all) {
		t.Fatalf("%v are not %d CPUs", all, runtime.NumCPU())
	}
	last := all[len(all)-1]
	var got []int
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with this function
		var set unix.CPUSet
		set.Set(last)
		err = unix.SchedSetaffinity(0, &set)
		got = allowed()
	}()
	<-done
	if err != nil || !slices.Equal(got, []int{last}) {
		t.Errorf("on CPU %d only: %v, %v", last, got, err)
	}
	if after := Allowed(); !slices.Equal(after, all) {
		t.Errorf("a thread was pinned, and the process is allowed %v instead of %v", after, all)
	}
}

func TestMask(t *testing.T) {
	for list, want := range map[string]string{
		"":         "0",
		"0":        "1",
		"0-3":      "f",
		"31":       "80000000",
		"32":       "1,00000000",
		"0,33,64":  "1,00000002,00000001",
		"8-11,127": "80000000,00000000,00000000,00000f00",
	} {
		set, err := cpuset.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := Mask(set); got != want {
			t.Errorf("Mask(%s) = %s, not %s", list, got, want)
		}
		if got := "00000000," + Mask(set); !SameMask(got, want) {
			t.Errorf("%s is not the same as %s", got, want)
		}
	}
	if SameMask("1,00000000", "1") {
		t.Error("two sets are the same")
	}
}
