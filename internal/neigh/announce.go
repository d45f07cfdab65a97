// SPDX-License-Identifier: Apache-2.0

package neigh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	// The group of all nodes of a link, and its MAC address (RFC 2464 section 7).
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// Announce tells everybody on the link, in the calling thread's network
// namespace, that addrs are at the link's MAC address: neighbours that know them
// at another correct themselves. It sends one frame for each, an ARP announcement
// (RFC 5227 section 3) or an unsolicited neighbour advertisement (RFC 4861 section
// 7.2.6); frames get lost, so send them again a second or two later. What is no
// address to announce is left out; after a frame that cannot be sent the rest are
// not tried. Errors: ErrNoLink, ErrNoRights, ErrBadAddress.
func Announce(link string, addrs ...netip.Addr) error {
	nic, err := ethernet(link)
	if err != nil {
		return fmt.Errorf("announce addresses on %s: %w", link, err)
	}
	// One socket for all: to close one, the kernel waits until no CPU can use it
	// any more, which takes milliseconds.
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
	build := advertisement
	if addr.Is4() {
		build = announcement
	}
	frame, err := build(nic.HardwareAddr, addr)
	if err != nil {
		return err
	}
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: nic.Index}); err != nil {
		return fmt.Errorf("send the frame: %w", err)
	}
	return nil
}

// announcement is an ARP request with the address as sender and as target.
func announcement(mac net.HardwareAddr, addr netip.Addr) ([]byte, error) {
	return serialize(
		&layers.Ethernet{SrcMAC: mac, DstMAC: broadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation:       layers.ARPRequest,
			SourceHwAddress: mac, SourceProtAddress: addr.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: addr.AsSlice(),
		})
}

// advertisement is an unsolicited neighbour advertisement (RFC 4861 section
// 4.4) that overrides what neighbours have.
func advertisement(mac net.HardwareAddr, addr netip.Addr) ([]byte, error) {
	// Receivers drop any other hop limit: it shows that no router forwarded it.
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: addr.AsSlice(), DstIP: allNodes.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	const override = 1 << 5
	return serialize(
		&layers.Ethernet{SrcMAC: mac, DstMAC: allNodesMAC, EthernetType: layers.EthernetTypeIPv6},
		ip, icmp,
		&layers.ICMPv6NeighborAdvertisement{
			Flags: override, TargetAddress: addr.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac}},
		})
}

func serialize(parts ...gopacket.SerializableLayer) ([]byte, error) {
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, parts...); err != nil {
		return nil, fmt.Errorf("build the frame: %w", err)
	}
	return buffer.Bytes(), nil
}

// packetSocket opens a socket that sends whole frames, and receives nothing: its
// protocol is 0.
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
