// SPDX-License-Identifier: Apache-2.0

// Package netdev sets up the network devices and routes of a laboratory, in the calling thread's network namespace.
package netdev

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Bridge is the switch's bridge.
const Bridge = "br0"

// bridgeAgeing is how long the switch remembers a silent host's port, in the kernel's hundredths of a second: an hour,
// longer than any trial, so that no frame is flooded to all ports during one.
const bridgeAgeing = uint32(3600 * 100)

// BuildBridge makes a bridge with a MAC address. It runs inside the host that has the bridge: the switch, or a balancer
// of containers.
func BuildBridge(mac net.HardwareAddr) error {
	no := false
	ageing := bridgeAgeing
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Bridge
	attrs.HardwareAddr = mac
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &no, AgeingTime: &ageing}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make the bridge %s: %w", Bridge, err)
	}
	for _, name := range []string{"stp_state", "forward_delay"} {
		if err := WriteSys(Bridge, "bridge/"+name, "0"); err != nil {
			return err
		}
	}
	return Up(Bridge)
}

// WriteSys writes an attribute of a device below /sys/class/net.
func WriteSys(device, attribute, value string) error {
	path := filepath.Join("/sys/class/net", device, attribute)
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s of device %s to %s: %w", attribute, device, value, err)
	}
	return nil
}

// Up sets a device up.
func Up(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("put %s up: %w", name, err)
	}
	return nil
}

// Statistics returns the counters of a device in the calling thread's
// namespace.
func Statistics(name string) (*netlink.LinkStatistics, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	return link.Attrs().Statistics, nil
}
