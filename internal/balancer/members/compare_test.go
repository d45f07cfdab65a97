// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"testing"
)

// TestStatusInOrder: the differences of a member stand in the order of the services' names.
func TestStatusInOrder(t *testing.T) {
	n := &node{differences: map[string]*differing{}}
	for i := range 20 {
		name := fmt.Sprintf("service%02d", i)
		n.differences[name] = &differing{difference: difference{name: name}}
	}
	for i, d := range new(Membership).member(n).Differs {
		if want := fmt.Sprintf("service%02d", i); d.Service != want {
			t.Errorf("difference %d is that of %s, want %s", i, d.Service, want)
		}
	}
}
