// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// TestTablesTooLargeToMake: refused before they are made; small ones are not asked about.
func TestTablesTooLargeToMake(t *testing.T) {
	recipes := func(size uint32) []Recipe {
		return slices.Repeat([]Recipe{{FullRecipe: FullRecipe{Size: size, All: make([]netip.AddrPort, 2)},
			Owners: make([]netip.AddrPort, 2)}}, 7)
	}
	left := memleft.Available{Bytes: 100 << 20, Source: "a test", Known: true}
	look := func() memleft.Available { return left }
	err := CheckMemory(recipes(16777213), look)
	if want := "not enough memory: to make the tables of 7 services takes 408.0 MiB, and 100.0 MiB are available (a test): use fewer services, or a smaller table_size: 583000 slots each would fit"; !errors.Is(err, lb.ErrTooLarge) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := CheckMemory(recipes(583000), look); err != nil {
		t.Errorf("what would fit: %v", err)
	}
	if err := CheckMemory(append(recipes(1021), Recipe{FullRecipe: FullRecipe{Size: 16777213}}),
		func() memleft.Available { t.Error("asked for tables of some kilobytes"); return left }); err != nil {
		t.Error(err)
	}
	left.Known = false
	if err := CheckMemory(recipes(16777213), look); err != nil {
		t.Errorf("refused where it is unknown what there is: %v", err)
	}
}
