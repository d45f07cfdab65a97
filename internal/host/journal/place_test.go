// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"

	"github.com/jeoul/jeoul/internal/host/namespace"
)

// TestPlace: the place with a network namespace keeps the boot, and distinguishes the namespace from others.
func TestPlace(t *testing.T) {
	ns, err := namespace.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	place, err := Place{Boot: "boot", Namespace: 1, Cookie: 2}.In(ns)
	if err != nil {
		t.Fatal(err)
	}
	cookie, err := ns.Cookie()
	if want := (Place{"boot", ns.Inode(), cookie}); err != nil || place != want {
		t.Errorf("the place is %+v, want %+v (%v)", place, want, err)
	}
}
