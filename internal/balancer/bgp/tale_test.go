// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"log/slog"
	"testing"
)

// TestEstablishedIsTold: each session that is new is told once, those with another speaker's process, too.
func TestEstablishedIsTold(t *testing.T) {
	told := 0
	tale := tale{log: slog.New(slog.DiscardHandler), established: func() { told++ }, known: map[string]*heard{}}
	up := Peer{Name: "192.0.2.1", State: Established, Sessions: 1}
	down, again := up, up
	down.State, again.Sessions = "idle", 2
	for i, step := range []struct {
		peers []Peer
		want  int
	}{
		{[]Peer{{Name: "192.0.2.1", State: "active"}}, 0}, {[]Peer{up}, 1}, {[]Peer{up}, 1}, {[]Peer{down}, 1}, {[]Peer{again}, 2},
		{[]Peer{again, {Name: "192.0.2.2", State: Established, Sessions: 1}}, 3},
	} {
		if tale.tell(step.peers); told != step.want {
			t.Errorf("after step %d %d sessions were told, want %d", i, told, step.want)
		}
	}
	tale.another()
	if tale.tell([]Peer{up}); told != 4 {
		t.Errorf("after another speaker %d sessions were told, want 4", told)
	}
}
