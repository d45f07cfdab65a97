// SPDX-License-Identifier: Apache-2.0

package localsockets

import "testing"

// TestServes: programs go on with the table of sockets of their own control group, and of groups below it, and not with
// that of any other, whose sockets they would not see closed.
func TestServes(t *testing.T) {
	group := func(cgroup string, id uint64) *Sockets { return &Sockets{cgroup: cgroup, id: id} }
	for _, test := range []struct {
		name         string
		next, before *Sockets
		want         bool
	}{
		{"the first", group("/c/a", 2), nil, false},
		{"none any more", nil, group("/c/a", 2), false},
		{"the same", group("/c/a", 2), group("/c/a", 2), true},
		{"the same, by another path", group("/d/a", 2), group("/c/a", 2), true},
		{"the same, of an earlier process", group("/c/a", 2), group("", 2), true},
		{"beside", group("/c/b", 3), group("/c/a", 2), false},
		{"beside, with a name that begins the same", group("/c/a", 3), group("/c/ab", 2), false},
		{"above", group("/c", 1), group("/c/a/b", 3), true},
		{"below", group("/c/a", 2), group("/c", 1), false},
		{"made again", group("/c/a", 4), group("/c/a", 2), false},
		{"above one of an earlier process", group("/c", 1), group("", 2), false},
	} {
		if got := test.next.serves(test.before); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
