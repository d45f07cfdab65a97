// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/packet"
)

// Types of ICMP (RFC 792), of ICMPv6 (RFC 4443; names with a 6) and of neighbour discovery (RFC 4861).
const (
	echoReply             = 0
	echoRequest           = 8
	echoRequest6          = 128
	echoReply6            = 129
	neighborSolicitation  = 135
	neighborAdvertisement = 136
)

// ask resolves an address on the segment, as any host does before it sends to it (ARP, RFC 826; neighbour solicitation,
// RFC 4861 section 4.3). from is an address of this host of the same family.
//
// A probe without a sender's address (RFC 5227) would leave no trace at the host that answers. But Linux does not
// answer it for an address on its loopback, which is exactly the misconfiguration to detect.
func (e *listener) ask(address, from netip.Addr) error {
	if !from.IsValid() || from.Is4() != address.Is4() {
		return nil
	}
	if address.Is4() {
		return e.send(packet.ARPFrame(e.nic.HardwareAddr, from, address))
	}
	// The solicited-node group (RFC 4291 section 2.7.1) and its MAC address.
	target := address.As16()
	group := netip.AddrFrom16([16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]})
	mac := net.HardwareAddr{0x33, 0x33, 0xff, target[13], target[14], target[15]}
	const sourceLinkLayer = 1 // an option, whose length is in units of 8 bytes
	message := packet.Append(nil, packet.ICMP{Type: neighborSolicitation}, target, [2]byte{sourceLinkLayer, 1},
		[6]byte(e.nic.HardwareAddr))
	ip := packet.IP{Source: from, Destination: group, Protocol: unix.IPPROTO_ICMPV6, TTL: 255}
	return e.send(packet.Frame(mac, e.nic.HardwareAddr, ip.EtherType(), ip.Packet(message)))
}

// ping sends a ping for an address to a MAC address, no matter which host has the address.
func (e *listener) ping(mac net.HardwareAddr, from, to netip.Addr, sequence uint16) error {
	echo := packet.ICMP{Type: echoRequest, Rest: uint32(e.id)<<16 | uint32(sequence)}
	ip := packet.IP{Source: from, Destination: to, Protocol: unix.IPPROTO_ICMP, TTL: 64}
	if !to.Is4() {
		echo.Type, ip.Protocol = echoRequest6, unix.IPPROTO_ICMPV6
	}
	message := append(packet.Append(nil, echo), "jeoul doctor"...)
	return e.send(packet.Frame(mac, e.nic.HardwareAddr, ip.EtherType(), ip.Packet(message)))
}

// sendSYN sends a SYN for an address and port to a MAC address, no matter which host has the address. number is the
// sequence number, which identifies the answer.
func (e *listener) sendSYN(mac net.HardwareAddr, from netip.Addr, to netip.AddrPort, number uint32) error {
	return e.sendTCP(mac, from, to, packet.TCP{Sequence: number, Flags: packet.FlagSYN, Window: 1024})
}

// sendRST resets the connection that the answer to a SYN has begun.
func (e *listener) sendRST(mac net.HardwareAddr, from netip.Addr, to netip.AddrPort, number uint32) error {
	return e.sendTCP(mac, from, to, packet.TCP{Sequence: number, Flags: packet.FlagRST})
}

func (e *listener) sendTCP(mac net.HardwareAddr, from netip.Addr, to netip.AddrPort, header packet.TCP) error {
	header.SourcePort, header.DestinationPort, header.DataOffset = e.id, to.Port(), 5<<4
	ip := packet.IP{Source: from, Destination: to.Addr(), Protocol: unix.IPPROTO_TCP, TTL: 64}
	return e.send(packet.Frame(mac, e.nic.HardwareAddr, ip.EtherType(), ip.Packet(packet.Append(nil, header))))
}

// queuePause is the pause before a frame that met a full queue is sent again.
const queuePause = time.Millisecond

func (e *listener) send(frame []byte) error {
	err := e.transmit(frame)
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) {
		// The queue of the interface, or of the socket after a burst of probes.
		<-time.After(queuePause)
		err = e.transmit(frame)
	}
	if err != nil {
		return fmt.Errorf("send on %s: %w", e.nic.Name, err)
	}
	return nil
}

func (e *listener) toSocket(frame []byte) error {
	connection, err := e.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := connection.Control(func(fd uintptr) {
		failed = unix.Sendto(int(fd), frame, 0, &unix.SockaddrLinklayer{Ifindex: e.nic.Index})
	}); err != nil {
		return err
	}
	return failed
}
