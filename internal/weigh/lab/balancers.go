// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// MaxBalancers bounds the balancers of one laboratory.
const MaxBalancers = 9

// uplinkBits is the length of the prefix of a balancer's link to the router, 198.19.N.0/24.
const uplinkBits = 24

// addBalancers adds the balancers besides the first, the router before them, and their links.
func (l *Lab) addBalancers(ctx context.Context) (err error) {
	l.Balancers = []*Host{l.Balancer}
	if l.Router, err = l.addHost(topology.Router, 1); err != nil {
		return err
	}
	if err := l.Router.onKeeper(func() error {
		for _, s := range topology.RouterSettings {
			if err := sysctl.Write(s.Name, s.Value); err != nil {
				return fmt.Errorf("set %s of the router: %w", s.Name, err)
			}
		}
		return netdev.ForgetHash(l.Router.Interface)
	}); err != nil {
		return err
	}
	for n := 1; n <= l.spec.Balancers; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n > 1 {
			h, err := l.addHost(topology.Balancer, n)
			if h != nil {
				l.Balancers = append(l.Balancers, h)
			}
			if err != nil {
				return err
			}
		}
		if err := l.linkToRouter(l.Balancers[n-1], n); err != nil {
			return fmt.Errorf("link %s to the router: %w", l.Balancers[n-1].Name, err)
		}
	}
	return nil
}

// linkToRouter makes balancer n's own link: both ends notice at once when it goes down.
func (l *Lab) linkToRouter(h *Host, n int) error {
	h.Uplink = topology.DeviceName(fmt.Sprintf("up%d", n), l.ID)
	h.GatewayPort = topology.DeviceName(fmt.Sprintf("to-lb%d", n), l.ID)
	h.Gateway4 = netip.AddrFrom4([4]byte{198, 19, byte(n), 1})
	h.Uplink4 = netip.AddrFrom4([4]byte{198, 19, byte(n), 2})
	err := l.Router.onKeeper(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = h.GatewayPort
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = h.Uplink, netlink.NsFd(h.netns.Fd())
		veth.PeerHardwareAddr = net.HardwareAddr{0x02, 0x00, 0x13, byte(n), 0, 2}
		return errors.Join(netlink.LinkAdd(veth),
			netdev.SetUpWithAddress(h.GatewayPort, netip.PrefixFrom(h.Gateway4, uplinkBits)))
	})
	if err != nil {
		return err
	}
	return h.onKeeper(func() error {
		return netdev.SetUpWithAddress(h.Uplink, netip.PrefixFrom(h.Uplink4, uplinkBits))
	})
}
