// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// birdVIP is the name of the protocol in BIRD that has the VIP's route.
const birdVIP = "vip"

// birdText returns the configuration of a BIRD that announces a VIP to a router, from an address on the same link as
// the router's.
func birdText(vip, from, router netip.Addr) []byte {
	return fmt.Appendf(nil, `log stderr all;
router id %[1]s;
protocol device { scan time 1; }
protocol static %[2]s { ipv4; route %[3]s/%[4]d blackhole; }
protocol bgp upstream {
	local %[1]s as %[5]d;
	neighbor %[6]s as %[7]d;
	hold time %[8]d;
	check link on;
	connect delay time 1;
	connect retry time 1;
	error wait time 1, 2;
	ipv4 { import none; export where source = RTS_STATIC; next hop self; };
}
`, from, birdVIP, vip, vip.BitLen(), subject.BalancerAS, router, subject.RouterAS, int(subject.HoldTime.Seconds()))
}

// announce starts a BIRD that announces the VIP to the router, over the balancer's own link.
func (b *ipvsBalancer) announce(ctx context.Context, vip netip.Addr) (*subject.Program, error) {
	path := filepath.Join(b.at.Dir, "bird.conf")
	if err := b.at.WriteFile(path, birdText(vip, b.at.Uplink4, b.at.Gateway4)); err != nil {
		return nil, fmt.Errorf("writing BIRD's configuration: %w", err)
	}
	bird, err := subject.StartProgram(ctx, b.at, "bird", "-f", "-c", path, "-s", b.birdSocket(), "-P",
		filepath.Join(b.at.Dir, "bird.pid"))
	if err != nil {
		return nil, fmt.Errorf("starting BIRD beside IPVS: %w", err)
	}
	return bird, nil
}

func (b *ipvsBalancer) birdSocket() string { return filepath.Join(b.at.Dir, "bird.ctl") }

func (b *ipvsBalancer) commandBIRD(ctx context.Context, words ...string) error {
	return subject.RunProgram(ctx, b.at, "birdc", append([]string{"-s", b.birdSocket()}, words...)...)
}
