// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"net/netip"
	"testing"
)

// TestForeignEchoes: packets that are no reply, however short, are none.
func TestForeignEchoes(t *testing.T) {
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		e := newEcho(netip.MustParseAddr(to))
		reply := e.request()
		if e.six {
			reply[0] = 129
		} else {
			reply[0] = 0
			reply = append(append([]byte{0x45}, make([]byte, 19)...), reply...)
		}
		if !e.answers(reply) {
			t.Errorf("%s: its reply does not answer", to)
		}
		for n := range reply {
			if e.answers(reply[:n]) {
				t.Errorf("%s: the first %d bytes of its reply answer", to, n)
			}
		}
		if e.answers(e.request()) {
			t.Errorf("%s: the request answers itself", to)
		}
	}
}
