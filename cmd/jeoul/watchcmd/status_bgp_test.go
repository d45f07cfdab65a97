// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestStatusLocalSpeaker: with a routing daemon of the host, the status names the table with the VIPs, and no AS.
func TestStatusLocalSpeaker(t *testing.T) {
	var out strings.Builder
	status := &ops.BGP{Speaker: lb.SpeakerLocal, Table: 179, SpeakerPID: 4711,
		VIPs: []ops.AnnouncedVIP{{VIP: netip.MustParseAddr("198.51.100.80"), Announced: true}}}
	writeBGP(&out, status)
	status.SpeakerPID = 0
	writeBGP(&out, status)
	want := `
BGP by a daemon of this host: routes of protocol 74 in table 179 (process 4711)
  198.51.100.80 is announced

BGP by a daemon of this host: routes of protocol 74 in table 179 (no process keeps them)
  198.51.100.80 is announced
`
	if out.String() != want {
		t.Errorf("it says:\n%s\nwant:\n%s", out.String(), want)
	}
}
