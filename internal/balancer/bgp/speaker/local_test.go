// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestLocal: VIPs, and full NAT's addresses with metrics of their own, are in the table while they are wanted there and
// a balancer is heard: not once the speaker speaks itself, is an orphan, or is ended, also where the one that had put
// them there was killed.
func TestLocal(t *testing.T) {
	testenv.Root(t)
	p := &process{ns: testenv.Namespace(t), socket: filepath.Join(t.TempDir(), "speaker")}
	p.client = bgp.NewClient(p.socket)
	p.start(t, false)
	local := bgp.Desired{BGP: lb.BGP{Speaker: lb.SpeakerLocal, Table: 179},
		VIPs: []netip.Addr{netip.MustParseAddr(vip4),
			netip.MustParseAddr(vip6)}}
	has := func(when string, want ...string) {
		t.Helper()
		testenv.Eventually(t, testTimeout, when+", the table has what it should", func() bool {
			got := []string{}
			testenv.In(t, p.ns, func() error {
				for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
					routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
						return netlink.RouteListFiltered(family, &netlink.Route{Table: 179},
							netlink.RT_FILTER_TABLE)
					})
					if err != nil {
						return err
					}
					for _, r := range routes {
						text := r.Dst.IP.String()
						if r.Priority != lb.RouteMetric {
							text += fmt.Sprintf(" %d", r.Priority)
						}
						got = append(got, text)
					}
				}
				return nil
			})
			return slices.Equal(got, want)
		})
	}
	p.apply(t, local)
	has("wanted", vip4, vip6)
	if state, err := p.client.State(t.Context(), 0); err != nil || !slices.Equal(state.VIPs, local.VIPs) {
		t.Errorf("the state is %+v, %v", state, err)
	}
	p.apply(t, bgp.Desired{BGP: lb.BGP{ASN: speakerAS, RouterID: netip.MustParseAddr("192.0.2.10")}, VIPs: local.VIPs})
	has("with a speaker of its own")

	orphan := local
	orphan.OrphanTimeout = time.Nanosecond
	p.apply(t, orphan)
	has("without a balancer")
	p.apply(t, local)
	has("wanted again", vip4, vip6)
	drained := local
	drained.Draining, drained.Pool, drained.Backup = true, []netip.Addr{netip.MustParseAddr("198.51.100.10")},
		[]netip.Addr{netip.MustParseAddr("198.51.100.11")}
	p.apply(t, drained)
	has("drained, with a pool", vip4+" 200", "198.51.100.10", "198.51.100.11 300", vip6+" 200")
	p.apply(t, local)
	has("without a pool", vip4, vip6)

	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	has("without a speaker", vip4, vip6)
	p.start(t, true)
	has("with another speaker without a desired state", vip4, vip6)
	if err := p.client.Shutdown(t.Context(), bgp.Stop); err != nil {
		t.Fatal(err)
	}
	has("ended")
}
