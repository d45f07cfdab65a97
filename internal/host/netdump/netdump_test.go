// SPDX-License-Identifier: Apache-2.0

package netdump

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/vishvananda/netlink"
)

// table is dumped consistently after a number of changes during dumps.
type table struct{ interrupted, dumps int }

func (t *table) dump() ([]int, error) {
	if t.dumps++; t.dumps <= t.interrupted {
		return []int{1}, netlink.ErrDumpInterrupted
	}
	return []int{1, 2}, nil
}

func TestConsistent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, interrupted := range []int{0, 1, attempts - 1} {
			changing := &table{interrupted: interrupted}
			list, err := Consistent(changing.dump)
			if err != nil || !slices.Equal(list, []int{1, 2}) || changing.dumps != interrupted+1 {
				t.Errorf("%d dumps were interrupted: %v, %v after %d", interrupted, list, err, changing.dumps)
			}
		}
	})
}

func TestEndlessChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changing := &table{interrupted: attempts}
		list, err := Consistent(changing.dump)
		if !errors.Is(err, netlink.ErrDumpInterrupted) || !slices.Equal(list, []int{1}) {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func TestOtherErrors(t *testing.T) {
	calls, want := 0, errors.New("not permitted")
	if _, err := Consistent(func() ([]int, error) { calls++; return nil, want }); err != want || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
