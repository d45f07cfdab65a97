// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
)

// device is a tunnel of the kernel; closing it removes it.
type device struct{ netlink.Link }

func (d device) Close() error { return netlink.LinkDel(d.Link) }

// kernelTunnel returns one end of a tunnel of the kernel, whose module may be missing.
func kernelTunnel(vip, local, remote netip.Addr) netlink.Link {
	attrs := netlink.LinkAttrs{Name: "tun0", MTU: 1400}
	switch {
	case remote.Is6():
		// With the option of RFC 2473 that limits nesting, Linux's default.
		return &netlink.Ip6tnl{LinkAttrs: attrs, Local: local.AsSlice(), Remote: remote.AsSlice(),
			EncapLimit: 4, Ttl: 64}
	case vip.Is6():
		return &netlink.Sittun{LinkAttrs: attrs, Local: local.AsSlice(), Remote: remote.AsSlice(), Ttl: 64}
	}
	return &netlink.Iptun{LinkAttrs: attrs, Local: local.AsSlice(), Remote: remote.AsSlice(), Ttl: 64}
}

// raiseTunnel makes the device in the calling thread's namespace and routes an address through it, with its own source
// address if it needs one.
func raiseTunnel(tunnel netlink.Link, to, source netip.Addr) (io.Closer, error) {
	if err := netlink.LinkAdd(tunnel); err != nil {
		return nil, err
	}
	link, err := netlink.LinkByName("tun0")
	if err != nil {
		return nil, err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: netlink.NewIPNet(to.AsSlice()), Src: source.AsSlice()}
	return device{link}, errors.Join(netlink.LinkSetUp(link), netlink.RouteReplace(route))
}

// TestKernelTunnels: if the kernel has tunnels, packets for a VIP in them are unwrapped, and tunnels of the backend
// that are not for a VIP continue to work.
func TestKernelTunnels(t *testing.T) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, outer6 := range []bool{false, true} {
			s := newSegment(t)
			w := tunnelPath{lb.IPIP, vip, s.backend4, s.peer4}
			if outer6 {
				w.to, w.from = s.backend6, s.peer6
			}
			source := s.peer4
			if vip.Is6() {
				source = s.peer6
			}
			t.Run(w.String(), func(t *testing.T) {
				a := s.startWith(agent.Options{VIPs: []netip.Addr{vip}, Modes: []lb.Mode{lb.IPIP}, Dir: t.TempDir()})
				send := func() (io.Closer, error) { return raiseTunnel(kernelTunnel(vip, w.from, w.to), vip, source) }
				err := s.exchange(vip, 4<<20, send)
				if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
					t.Skipf("this kernel has no such tunnel: %v", err)
				}
				if err != nil {
					t.Error(err)
				}
				if accepted(t, a, lb.IPIP) == 0 {
					t.Error("nothing was undone")
				}
				s.besideAgent(t, w, vip.Next(), source)
			})
		}
	}
}

// besideAgent sends to an address of the backend that is no VIP, through a tunnel that ends in a device of the
// backend's kernel.
func (s *segment) besideAgent(t *testing.T, w tunnelPath, at, source netip.Addr) {
	testenv.In(t, s.backend, func() error {
		tunnel := kernelTunnel(at, w.to, w.from)
		if err := netlink.LinkAdd(tunnel); err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: netlink.NewIPNet(at.AsSlice())}
		if at.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		return errors.Join(netlink.LinkSetUp(tunnel), netlink.AddrAdd(tunnel, addr),
			testenv.WriteSysctl("net/ipv4/conf/all/rp_filter", "0"),
			testenv.WriteSysctl("net/ipv4/conf/tun0/rp_filter", "0"))
	})
	send := func() (io.Closer, error) { return raiseTunnel(kernelTunnel(at, w.from, w.to), at, source) }
	if err := s.exchange(at, 1<<20, send); err != nil {
		t.Errorf("by the kernel's own tunnel: %v", err)
	}
}
