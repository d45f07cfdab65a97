// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Silence takes the host off the segment, as if its cable were pulled or its power gone,
// and back onto it: the switch's end of its link goes down, so nothing of the host's
// arrives anywhere, ARP and NDP included, and nothing reaches it. Its processes, addresses
// and sockets stay. It returns ErrFar where the host is a machine.
func (h *Host) Silence(on bool) error {
	if h.machine != nil {
		return fmt.Errorf("take host %s off the segment: %w", h.Name, ErrFar)
	}
	err := h.portOn.Do(func() error {
		port, err := netlink.LinkByName(h.Port)
		if err != nil {
			return err
		}
		if on {
			return netlink.LinkSetDown(port)
		}
		return netlink.LinkSetUp(port)
	})
	if err != nil {
		return fmt.Errorf("set the port of %s: %w", h.Name, err)
	}
	return nil
}

// discardPort is that of the discard protocol (RFC 863).
const discardPort = 9

// Greet sends another host a datagram that nothing answers. The ARP request before it
// tells that host, and the switch, where this one is: what a machine that has just booted
// does by the first packet that it sends.
func (h *Host) Greet(other *Host) error {
	err := h.Do(func() error {
		conn, err := net.Dial("udp4", netip.AddrPortFrom(other.IPv4, discardPort).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte{0})
		return err
	})
	if err != nil {
		return fmt.Errorf("greet %s from %s: %w", other.Name, h.Name, err)
	}
	return nil
}
