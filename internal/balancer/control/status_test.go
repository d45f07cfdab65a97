// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

func TestNearlyFull(t *testing.T) {
	for _, test := range []struct {
		proven, unproven uint64
		want             []string
	}{
		{0, 0, nil}, {89, 179, nil}, {90, 0, []string{"raise flows.limit"}}, {0, 180, []string{"SYN flood"}},
		{100, 200, []string{"100 flows are remembered of at most 100",
			"200 unproven flows are remembered of at most 200"}},
	} {
		got := nearlyFull(ops.Flows{Proven: test.proven, ProvenLimit: 100, Unproven: test.unproven, UnprovenLimit: 200})
		if len(got) != len(test.want) || !slices.EqualFunc(got, test.want, strings.Contains) {
			t.Errorf("%d and %d: %q, want %q", test.proven, test.unproven, got, test.want)
		}
	}
}

// TestLossesOfXDP: the status warns of packets that may be lost and counts those that are, and the log has a line when
// there are ten times as many.
func TestLossesOfXDP(t *testing.T) {
	const warning = "eth9 is a veth"
	for _, test := range []struct {
		attachment lb.Attachment
		lost       uint64
		want       string
	}{
		{lb.Attachment{Interface: "eth9", Hook: lb.HookTC, Warning: ""}, 7, ""}, // another program's
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP}, 0, ""},
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP, Warning: warning}, 0, warning},
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP, Warning: warning}, 7,
			"7 frames that XDP sent are lost, though they are counted as forwarded: " + warning},
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP, Driver: "ixgbe"}, 7,
			"7 frames that XDP sent on eth9 are lost, though they are counted as forwarded: its driver (ixgbe) did not take them; see `ethtool -S eth9`, and set hook: tc if it goes on"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.attachment, w.xdpLost = &test.attachment, test.lost
			c := w.controller(web)
			stop := w.run(c)
			time.Sleep(lossInterval)
			synctest.Wait()
			status, err := c.Status()
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(status.Problems, test.want); got != (test.want != "") {
				t.Errorf("%+v, %d lost: problems %q, want %q", test.attachment, test.lost, status.Problems, test.want)
			}
			counted := test.lost
			if test.attachment.Hook != lb.HookXDP {
				counted = 0
			}
			if status.Interfaces[0].XDPLost != counted || status.Hook.Warning != test.attachment.Warning {
				t.Errorf("%+v", status.Interfaces[0])
			}
			if test.want != "" && !w.logged("WARN", test.want) {
				t.Errorf("not in the log: %q", test.want)
			}
			for _, more := range []uint64{9 * test.lost, 10 * test.lost} {
				w.lose(more)
				time.Sleep(lossInterval)
				synctest.Wait()
				logged := w.logged("WARN", fmt.Sprintf("%d frames that XDP sent", more))
				if want := test.want != "" && test.lost > 0 && more == 10*test.lost; logged != want {
					t.Errorf("%d lost after %d: logged %t, want %t", more, test.lost, logged, want)
				}
			}
			stop()
		})
	}
}
