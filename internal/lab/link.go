// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bridgeName is the switch's bridge.
const bridgeName = "br0"

// The features, by the names of `ethtool -k`'s long form.
const (
	featureTxChecksum = "tx-checksum-ip-generic"
	featureGRO        = "rx-gro"
)

// congestionControl is set per route: the default of a namespace is refused.
const congestionControl = "cubic"

// bridgeAgeing is how long the switch remembers a silent host's port, in the
// kernel's hundredths of a second: an hour, longer than any trial, so that no
// frame is flooded to all ports in the middle of one.
const bridgeAgeing = uint32(3600 * 100)

// buildSwitch makes the bridge. It runs inside the switch.
func buildSwitch() error {
	no := false
	ageing := bridgeAgeing
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	attrs.HardwareAddr = portMAC(roleSwitch, 0)
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &no, AgeingTime: &ageing}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make the bridge %s: %w", bridgeName, err)
	}
	for _, name := range []string{"stp_state", "forward_delay"} {
		if err := writeSys(bridgeName, "bridge/"+name, "0"); err != nil {
			return err
		}
	}
	return up(bridgeName)
}

// connect makes the link of host h: one end in h, the other a port of the
// switch. It runs inside the switch.
func connect(h *Host, queues int) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find the bridge %s: %w", bridgeName, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = h.Port
	attrs.HardwareAddr = portMAC(h.role, h.number)
	attrs.MasterIndex = bridge.Attrs().Index
	attrs.NumTxQueues, attrs.NumRxQueues = queues, queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName = h.Interface
	veth.PeerHardwareAddr = h.MAC
	veth.PeerNamespace = netlink.NsFd(h.netns.Fd())
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(queues), uint32(queues)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s to the switch: %w", h.Name, err)
	}
	return nil
}

// setDevice sets a device's features, its threading, and puts it up. It runs
// inside the device's namespace.
func setDevice(name string, txChecksum, threaded bool) error {
	if err := setFeatures(name, map[string]bool{featureGRO: true, featureTxChecksum: txChecksum}); err != nil {
		return err
	}
	if err := up(name); err != nil {
		return err
	}
	if !threaded {
		return nil
	}
	return writeSys(name, "threaded", "1")
}

func setFeatures(name string, features map[string]bool) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("set the offloads of %s: %w", name, err)
	}
	defer e.Close()
	if err := e.Change(name, features); err != nil {
		return fmt.Errorf("set the offloads of %s: %w", name, err)
	}
	return nil
}

func writeSys(device, attribute, value string) error {
	path := filepath.Join("/sys/class/net", device, attribute)
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s of device %s to %s: %w", attribute, device, value, err)
	}
	return nil
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("put %s up: %w", name, err)
	}
	return nil
}

// address gives the host's device its addresses and sets the congestion control
// of the routes that come with them. It runs inside the host. The text returned
// says why congestion control could not be set.
func (h *Host) address() (note string, err error) {
	link, err := netlink.LinkByName(h.Interface)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", h.Interface, err)
	}
	prefixes := []netip.Prefix{netip.PrefixFrom(h.IPv4, prefix4), netip.PrefixFrom(h.IPv6, prefix6)}
	for _, p := range prefixes {
		flags := 0
		if p.Addr().Is6() {
			flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p), Flags: flags}); err != nil {
			return "", fmt.Errorf("give %s the address %s: %w", h.Interface, p, err)
		}
		if err := setCongestionControl(link, p); err != nil {
			note = fmt.Sprintf("congestion control is the kernel's default, not %s: %v", congestionControl, err)
		}
	}
	return note, nil
}

// setCongestionControl replaces the connected route that the kernel made for an
// address by one that names the congestion control.
func setCongestionControl(link netlink.Link, p netip.Prefix) error {
	route := netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       ipNet(p.Masked()),
		Protocol:  unix.RTPROT_KERNEL,
		Congctl:   congestionControl,
	}
	if p.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
		route.Src = p.Addr().AsSlice()
	} else {
		// The kernel's own connected route has this metric; another would add
		// a second route beside it.
		route.Priority = 256
	}
	return netlink.RouteReplace(&route)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// SetOffload switches the transmit checksum offload of the host's device, and
// with it TSO. It must be off on a host whose frames reach an XDP program: an
// XDP frame cannot carry a checksum that is still to be made.
func (h *Host) SetOffload(tx bool) error {
	if h.Interface == "" {
		return fmt.Errorf("set the offloads of host %s: %w", h.Name, errors.New("it has no device of its own"))
	}
	return h.Do(func() error {
		return setFeatures(h.Interface, map[string]bool{featureTxChecksum: tx})
	})
}
