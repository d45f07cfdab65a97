// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"log/slog"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestEstablishedIsReported: each new session is reported once, those with another speaker's process, too.
func TestEstablishedIsReported(t *testing.T) {
	delivered := 0
	sessions := sessionLog{log: slog.New(slog.DiscardHandler), established: func() {
		delivered++
	}, known: map[string]*loggedPeer{}}
	up := ops.BGPPeer{Address: "192.0.2.1", State: ops.BGPEstablished, Sessions: 1}
	down, again := up, up
	down.State, again.Sessions = "idle", 2
	for i, step := range []struct {
		peers []ops.BGPPeer
		want  int
	}{
		{[]ops.BGPPeer{{Address: "192.0.2.1", State: "active"}}, 0}, {[]ops.BGPPeer{up}, 1}, {[]ops.BGPPeer{up}, 1},
		{[]ops.BGPPeer{down}, 1}, {[]ops.BGPPeer{again}, 2},
		{[]ops.BGPPeer{again, {Address: "192.0.2.2", State: ops.BGPEstablished, Sessions: 1}}, 3},
	} {
		if sessions.logPeers(step.peers); delivered != step.want {
			t.Errorf("after step %d %d sessions were reported, want %d", i, delivered, step.want)
		}
	}
	sessions.speakerReplaced()
	if sessions.logPeers([]ops.BGPPeer{up}); delivered != 4 {
		t.Errorf("after another speaker %d sessions were reported, want 4", delivered)
	}
}
