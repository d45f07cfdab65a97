// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// membersWeb has members, and neither BGP nor VRRP.
const membersWeb = `
interface: eth9
members: {listen: "192.0.2.10:7946", peers: [192.0.2.10, 192.0.2.11], key_file: /etc/jeoul/members.key}
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    check: {type: tcp, via: address}
    announce: false
    backends:
      - {name: web01, address: 192.0.2.1}
      - {name: web02, address: 192.0.2.2}
`

// TestAddressesWait: where nothing but addresses on the interface brings packets, a balancer that starts beside members
// has no VIP there before it knows their flows and has its checks' verdicts, and no transition begins by that; one that
// goes on with a data plane has all at once.
func TestAddressesWait(t *testing.T) {
	for _, takesOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, joined := newWorld(t), make(chan struct{}, 1)
			c, asked := watched(w, membersWeb)
			c.opt.Joined, c.opt.TakesOver, c.opt.Memory = joined, takesOver, &noted{}
			c.gate.awaitFlows()
			stop := w.run(c)
			has := func(when string, want, fresh bool) {
				t.Helper()
				time.Sleep(2 * settleDelay)
				w.mu.Lock()
				defer w.mu.Unlock()
				if has := slices.Contains(c.vips.Addresses(), netip.MustParseAddr("192.0.2.100")); has != want ||
					w.state.Fresh != fresh {
					t.Errorf("%s, the interface has the VIP: %v, and the table is the first: %v; want %v, %v", when,
						has, w.state.Fresh, want, fresh)
				}
			}
			if takesOver {
				has("going on", true, false)
				asked.say(t, c, failing("refused"), "web02")
				has("with a verdict", true, false)
			} else {
				has("at first", false, false)
				joined <- struct{}{}
				has("with the flows of others", false, false)
				asked.say(t, c, healthy(), "web01")
				has("with one verdict of two", false, true)
				asked.say(t, c, failing("refused"), "web02")
				has("with both", true, true)
				asked.say(t, c, healthy(), "web02")
				has("with another verdict", true, false)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
