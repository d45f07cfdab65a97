// SPDX-License-Identifier: Apache-2.0

package neigh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/packet"
)

var (
	// allNodes is the group of all nodes of a link, and allNodesMAC its MAC address (RFC 2464 section 7).
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// Announce announces addrs at the link's MAC address to all hosts on the link, in the calling thread's network
// namespace: neighbours with another MAC address update their entries. It sends one frame for each, an ARP announcement
// (RFC 5227 section 3) or an unsolicited neighbour advertisement (RFC 4861 section 7.2.6); frames may be lost, so
// repeat it a second or two later. It skips addresses that cannot be announced, and stops after a frame that cannot be
// sent. Errors: ErrNoLink, ErrNoRights, ErrBadAddress.
func Announce(link string, addrs ...netip.Addr) error {
	nic, err := ethernet(link)
	if err != nil {
		return fmt.Errorf("announce addresses on %s: %w", link, err)
	}
	// One socket for all: closing one waits for an RCU grace period, which takes milliseconds.
	fd, err := packetSocket()
	if err != nil {
		return fmt.Errorf("announce addresses on %s: %w", link, err)
	}
	defer unix.Close(fd)
	var failed []error
	for _, addr := range addrs {
		err := announce(fd, nic, key(addr))
		if err != nil {
			failed = append(failed, fmt.Errorf("announce %s on %s: %w", addr, link, err))
		}
		if err != nil && !errors.Is(err, ErrBadAddress) {
			break
		}
	}
	return errors.Join(failed...)
}

func announce(fd int, nic *net.Interface, addr netip.Addr) error {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() || addr == broadcast4 {
		return fmt.Errorf("it %w", ErrBadAddress)
	}
	var frame []byte
	if addr.Is4() {
		// An announcement is a request for the sender's own address.
		frame = packet.ARPFrame(nic.HardwareAddr, addr, addr)
	} else {
		frame = advertisement(nic.HardwareAddr, addr)
	}
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: nic.Index}); err != nil {
		return fmt.Errorf("send the frame: %w", err)
	}
	return nil
}

// advertisement is an unsolicited neighbour advertisement (RFC 4861 section 4.4) that overrides the neighbours'
// entries.
func advertisement(mac net.HardwareAddr, addr netip.Addr) []byte {
	const (
		neighborAdvertisement = 136
		override              = 1 << 29
		targetLinkLayer       = 2 // an option, whose length is in units of 8 bytes
	)
	message := packet.Append(nil, packet.ICMP{Type: neighborAdvertisement, Rest: override}, addr.As16(),
		[2]byte{targetLinkLayer, 1}, [6]byte(mac))
	// Receivers drop any other hop limit: it shows that no router forwarded it.
	ip := packet.IP{Source: addr, Destination: allNodes, Protocol: unix.IPPROTO_ICMPV6, TTL: 255}
	return packet.Frame(allNodesMAC, mac, ip.EtherType(), ip.Packet(message))
}

// packetSocket opens a packet socket for sending frames; with protocol 0 it receives nothing.
func packetSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return -1, fmt.Errorf("open a packet socket: %w (%w)", ErrNoRights, err)
	}
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	return fd, nil
}
