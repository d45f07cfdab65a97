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
// namespace, that addr is at the link's MAC address: neighbours that know it at
// another correct themselves. It sends one frame, an ARP announcement (RFC 5227
// section 3) or an unsolicited neighbour advertisement (RFC 4861 section
// 7.2.6); frames get lost, so send it again a second or two later. Errors:
// ErrNoLink, ErrNoRights, ErrBadAddress.
func Announce(link string, addr netip.Addr) error {
	doing := fmt.Sprintf("announce %s on %s", addr, link)
	addr = key(addr)
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() || addr == broadcast4 {
		return fmt.Errorf("%s: it %w", doing, ErrBadAddress)
	}
	nic, err := ethernet(link)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	build := advertisement
	if addr.Is4() {
		build = announcement
	}
	frame, err := build(nic.HardwareAddr, addr)
	if err == nil {
		err = send(nic.Index, frame)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
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

// send puts a whole frame on the link of that index.
func send(index int, frame []byte) error {
	// Protocol 0: the socket receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("open a packet socket: %w (%w)", ErrNoRights, err)
	}
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		return fmt.Errorf("send the frame: %w", err)
	}
	return nil
}
