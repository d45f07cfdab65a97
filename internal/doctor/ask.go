// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ask asks the segment who has an address, as any host does that wants to send there
// (ARP, RFC 826; neighbour solicitation, RFC 4861 section 4.3). from is an address of
// this host's of the same family.
//
// A probe without a sender's address (RFC 5227) would leave no trace with who answers,
// but Linux does not answer it for an address on its loopback, which is the very mistake
// to be found.
func (e *ear) ask(address, from netip.Addr) error {
	if !from.IsValid() || from.Is4() != address.Is4() {
		return nil
	}
	if address.Is4() {
		return e.send(
			&layers.Ethernet{SrcMAC: e.nic.HardwareAddr, DstMAC: broadcast, EthernetType: layers.EthernetTypeARP},
			&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
				Operation: layers.ARPRequest, SourceHwAddress: e.nic.HardwareAddr, SourceProtAddress: from.AsSlice(),
				DstHwAddress: make([]byte, 6), DstProtAddress: address.AsSlice()})
	}
	// The solicited-node group (RFC 4291 section 2.7.1) and its MAC address.
	target := address.As16()
	group := netip.AddrFrom16([16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]})
	mac := net.HardwareAddr{0x33, 0x33, 0xff, target[13], target[14], target[15]}
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: group.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return err
	}
	return e.send(&layers.Ethernet{SrcMAC: e.nic.HardwareAddr, DstMAC: mac, EthernetType: layers.EthernetTypeIPv6}, ip, icmp,
		&layers.ICMPv6NeighborSolicitation{TargetAddress: address.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: e.nic.HardwareAddr}}})
}

// ping sends a ping for an address to a MAC address, whichever host has the address.
func (e *ear) ping(mac net.HardwareAddr, from, to netip.Addr, sequence uint16) error {
	ethernet := &layers.Ethernet{SrcMAC: e.nic.HardwareAddr, DstMAC: mac, EthernetType: layers.EthernetTypeIPv4}
	payload := gopacket.Payload("jeoul doctor")
	if to.Is4() {
		return e.send(ethernet,
			&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: to.AsSlice()},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: e.id, Seq: sequence}, payload)
	}
	ethernet.EthernetType = layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return err
	}
	return e.send(ethernet, ip, icmp, &layers.ICMPv6Echo{Identifier: e.id, SeqNumber: sequence}, payload)
}

func (e *ear) send(parts ...gopacket.SerializableLayer) error {
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		return err
	}
	connection, err := e.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := connection.Control(func(fd uintptr) {
		failed = unix.Sendto(int(fd), buffer.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: e.nic.Index})
	}); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("send on %s: %w", e.nic.Name, failed)
	}
	return nil
}
