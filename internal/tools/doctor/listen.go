// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/host/sockfilter"
)

// listener receives ARP, NDP and the answers to its own probes on one interface, and sends probes. It is opened in the
// network namespace of the calling thread, and works from any thread.
type listener struct {
	nic  net.Interface
	file *os.File
	raw  syscallConn
	// transmit sends a frame by the socket.
	transmit func(frame []byte) error
	// id is the identifier of its pings, by which it recognises the answers.
	id uint16

	mu sync.Mutex
	// claims has the MAC addresses that claimed each address. An empty one means this host.
	claims map[netip.Addr]map[string]bool
	// echoes counts the answers to pings, by address and sequence number.
	echoes map[echoKey]int
	// answered has the MAC addresses that answered a SYN, by its sequence number.
	answered map[uint32]map[string]bool
	ended    chan struct{}
}

type syscallConn interface {
	Read(func(uintptr) bool) error
}

type echoKey struct {
	from     netip.Addr
	sequence uint16
}

// listen opens a listener. It needs CAP_NET_RAW.
func listen(name string) (*listener, error) {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	e := &listener{nic: *nic, id: uint16(rand.Uint32()), claims: map[netip.Addr]map[string]bool{},
		echoes:   map[echoKey]int{},
		answered: map[uint32]map[string]bool{}, ended: make(chan struct{})}
	e.transmit = e.toSocket
	// Without a protocol, so that no packet arrives before the filter is set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	e.file = os.NewFile(uintptr(fd), "packets of "+name)
	err = setFilter(fd, e.id)
	if err == nil {
		all := uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8) // network byte order
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: nic.Index})
	}
	if err == nil {
		e.raw, err = e.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", name, err), e.file.Close())
	}
	go e.receive()
	return e, nil
}

// setFilter accepts only ARP, neighbour advertisements, and answers to pings and SYNs of an ID. Copying any other frame
// would be a waste.
func setFilter(fd int, id uint16) error {
	const (
		reject = 29
		accept = 30
	)
	jump := func(from int, to int) uint8 { return uint8(to - from - 1) }
	program := []bpf.Instruction{
		0:  bpf.LoadAbsolute{Off: 12, Size: 2},
		1:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: jump(1, accept)},
		2:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: jump(2, 18)},
		3:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: jump(3, reject)},
		4:  bpf.LoadAbsolute{Off: 20, Size: 2},
		5:  bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: jump(5, reject)},
		6:  bpf.LoadMemShift{Off: 14},
		7:  bpf.LoadAbsolute{Off: 23, Size: 1},
		8:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: jump(8, 15)},
		9:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMP, SkipTrue: jump(9, reject)},
		10: bpf.LoadIndirect{Off: 14, Size: 1},
		11: bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: echoReply, SkipTrue: jump(11, reject)},
		12: bpf.LoadIndirect{Off: 18, Size: 2},
		13: bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(id), SkipTrue: jump(13, accept), SkipFalse: jump(13, reject)},
		14: bpf.RetConstant{Val: 0}, // never reached
		15: bpf.LoadIndirect{Off: 16, Size: 2},
		16: bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(id), SkipTrue: jump(16, accept), SkipFalse: jump(16, reject)},
		17: bpf.RetConstant{Val: 0}, // never reached
		18: bpf.LoadAbsolute{Off: 20, Size: 1},
		19: bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: jump(19, 26)},
		20: bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: jump(20, reject)},
		21: bpf.LoadAbsolute{Off: 54, Size: 1},
		22: bpf.JumpIf{Cond: bpf.JumpEqual, Val: neighborAdvertisement, SkipTrue: jump(22, accept)},
		23: bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: echoReply6, SkipTrue: jump(23, reject)},
		24: bpf.LoadAbsolute{Off: 58, Size: 2},
		25: bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(id), SkipTrue: jump(25, accept), SkipFalse: jump(25, reject)},
		26: bpf.LoadAbsolute{Off: 56, Size: 2},
		27: bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(id), SkipTrue: jump(27, accept), SkipFalse: jump(27, reject)},
		28: bpf.RetConstant{Val: 0}, // never reached
		29: bpf.RetConstant{Val: 0},
		30: bpf.RetConstant{Val: 512},
	}
	return sockfilter.Attach(fd, program)
}

// receive reads frames until the socket is closed.
func (e *listener) receive() {
	defer close(e.ended)
	frame := make([]byte, 512)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := e.raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), frame, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return
		}
		if failed == nil {
			link, ok := from.(*unix.SockaddrLinklayer)
			e.note(frame[:n], ok && link.Pkttype == unix.PACKET_OUTGOING)
		} else if !errors.Is(failed, unix.EINTR) && !errors.Is(failed, unix.ENETDOWN) {
			return
		}
	}
}

// note takes the claims and the answers from a frame, and ignores anything else.
func (e *listener) note(frame []byte, outgoing bool) {
	eth, rest, ok := packet.Read[packet.Ethernet](frame)
	if !ok {
		return
	}
	switch eth.Type {
	case unix.ETH_P_ARP:
		e.noteARP(rest, outgoing)
	case unix.ETH_P_IP:
		e.noteIPv4(eth, rest, outgoing)
	case unix.ETH_P_IPV6:
		h, rest, ok := packet.Read[packet.IPv6](rest)
		if ok && h.NextHeader == unix.IPPROTO_TCP && !outgoing {
			e.noteTCP(eth, netip.AddrFrom16(h.Source), netip.AddrFrom16(h.Destination), rest)
		}
		if !ok || h.NextHeader != unix.IPPROTO_ICMPV6 {
			return
		}
		icmp, rest, ok := packet.Read[packet.ICMP](rest)
		switch {
		case !ok:
		case icmp.Type == neighborAdvertisement:
			if target, _, ok := packet.Read[[16]byte](rest); ok {
				e.claim(netip.AddrFrom16(target), eth.Source[:], outgoing, false)
			}
		case icmp.Type == echoReply6 && !outgoing:
			e.echoed(netip.AddrFrom16(h.Source), uint16(icmp.Rest))
		}
	}
}

// noteIPv4 takes answers to pings and SYNs. The filter accepts only unfragmented ones.
func (e *listener) noteIPv4(eth packet.Ethernet, b []byte, outgoing bool) {
	h, _, ok := packet.Read[packet.IPv4](b)
	length := int(h.VersionLength&0xf) * 4
	if !ok || outgoing || length < 20 || length > len(b) {
		return
	}
	switch h.Protocol {
	case unix.IPPROTO_ICMP:
		if icmp, _, ok := packet.Read[packet.ICMP](b[length:]); ok {
			e.echoed(netip.AddrFrom4(h.Source), uint16(icmp.Rest))
		}
	case unix.IPPROTO_TCP:
		e.noteTCP(eth, netip.AddrFrom4(h.Source), netip.AddrFrom4(h.Destination), b[length:])
	}
}

// noteTCP takes the answer to a SYN, a SYN-ACK or an RST, which means that a host has the address and port. It resets
// the connection that a SYN-ACK begins.
func (e *listener) noteTCP(eth packet.Ethernet, from, to netip.Addr, b []byte) {
	tcp, _, ok := packet.Read[packet.TCP](b)
	if !ok || tcp.DestinationPort != e.id || tcp.Flags&packet.FlagACK == 0 ||
		tcp.Flags&(packet.FlagSYN|packet.FlagRST) == 0 {
		return
	}
	e.mu.Lock()
	if e.answered[tcp.Acknowledgment-1] == nil {
		e.answered[tcp.Acknowledgment-1] = map[string]bool{}
	}
	e.answered[tcp.Acknowledgment-1][net.HardwareAddr(eth.Source[:]).String()] = true
	e.mu.Unlock()
	if tcp.Flags&packet.FlagSYN != 0 && e.file != nil {
		// If that fails, the peer gives up by itself a minute later.
		_ = e.sendRST(eth.Source[:], to, netip.AddrPortFrom(from, tcp.SourcePort), tcp.Acknowledgment)
	}
}

func (e *listener) noteARP(b []byte, outgoing bool) {
	arp, _, ok := packet.Read[packet.ARP](b)
	address := netip.AddrFrom4(arp.SenderIP)
	if !ok || arp.ProtocolType != unix.ETH_P_IP || arp.HardwareLength != 6 || arp.ProtocolLength != 4 ||
		address.IsUnspecified() {
		return
	}
	// This host's own request for an address is no claim, but its answer is.
	e.claim(address, arp.SenderMAC[:], outgoing, outgoing && arp.Operation != packet.ARPReply)
}

func (e *listener) claim(address netip.Addr, mac net.HardwareAddr, outgoing, question bool) {
	if question {
		return
	}
	who := mac.String()
	if outgoing || bytes.Equal(mac, e.nic.HardwareAddr) {
		who = ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claims[address] == nil {
		e.claims[address] = map[string]bool{}
	}
	e.claims[address][who] = true
}

func (e *listener) echoed(from netip.Addr, sequence uint16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.echoes[echoKey{from, sequence}]++
}

// close closes the listener, and waits until its claims are complete.
func (e *listener) close() {
	e.file.Close()
	<-e.ended
}
