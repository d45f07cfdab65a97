// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/sockfilter"
)

// Routers tell the sender of a packet that is too big for their next link how large it may
// be (RFC 1191, RFC 8201). Of a tunnel packet the sender is this host, to whose kernel such an
// error means nothing, as no socket has sent the packet. A raw socket hears them all.

const (
	// pmtuLifetime is how long an answer counts; then larger packets are tried again
	// (RFC 1191 section 6.3, RFC 8201 section 4).
	pmtuLifetime = 10 * time.Minute
	// minMTU4 and minMTU6 are the least MTU of a path: the packet that every host must take over IPv4 (RFC 791),
	// and every link over IPv6.
	minMTU4, minMTU6 = 576, 1280
	// icmpInterval and icmpBatch bound the cost of a flood of errors: so many are read at a time, and the kernel
	// keeps no more than icmpBuffer bytes of them.
	icmpInterval = 200 * time.Millisecond
	icmpBatch    = 100
	icmpBuffer   = 1 << 16
	// The type and the code of an ICMP error about a packet that was too big (RFC 792).
	unreachable4, tooBig4 = 3, 4
	// guePort is where GUE datagrams go, and gueFirstSource where their sources begin:
	// bpf/balancer/send/tunnel.h.
	guePort, gueFirstSource = 6080, 0xc000
)

// pathMTU is the MTU that a router reported of the path to an address.
type pathMTU struct {
	mtu   int
	until time.Time
}

// quoted is the content of an ICMP error about a packet that was too big.
type quoted struct {
	source, destination netip.Addr
	// size is the packet's and mtu the largest that would pass, in bytes.
	size, mtu int
}

// openListeners opens a raw socket for the errors of each family, which takes nothing else.
func openListeners(ns *namespace.Namespace) (listeners []int, err error) {
	err = ns.Do(func() error {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			listener, err := openListener(family)
			if errors.Is(err, unix.EAFNOSUPPORT) {
				continue
			} else if err != nil {
				return err
			}
			listeners = append(listeners, listener)
		}
		return nil
	})
	return listeners, err
}

// listenError names the right that is missing where no raw socket can be had.
func listenError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf(
			"open a raw socket for ICMP errors about tunnel packets: not permitted: run as root or with CAP_NET_RAW (%w)", err)
	}
	return fmt.Errorf("open a raw socket for ICMP errors about tunnel packets: %w", err)
}

func openListener(family int) (int, error) {
	protocol := unix.IPPROTO_ICMP
	if family == unix.AF_INET6 {
		protocol = unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return -1, listenError(err)
	}
	if family == unix.AF_INET6 {
		only := unix.ICMPv6Filter{Data: [8]uint32{^uint32(1 << 2), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0),
			^uint32(0), ^uint32(0), ^uint32(0)}}
		err = unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &only)
	} else {
		// struct icmp_filter of <linux/icmp.h>: a bit for each type that is not heard.
		const icmpFilter = 1
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_RAW, icmpFilter, ^(1<<unreachable4)), filterTooBig(fd))
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, icmpBuffer)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("filter the ICMP errors: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// filterTooBig has a socket of ICMP over IPv4 take only errors about packets that were too big: "port unreachable" has
// the same type, and comes as often as a program of this host logs to such a port.
func filterTooBig(fd int) error {
	return sockfilter.Attach(fd, []bpf.Instruction{
		bpf.LoadMemShift{Off: 0}, // a raw socket has the IPv4 header, too
		bpf.LoadIndirect{Off: 1, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tooBig4, SkipFalse: 1},
		bpf.RetConstant{Val: 1<<16 - 1},
		bpf.RetConstant{Val: 0},
	})
}

// readICMPErrors reads the errors that have come, and reports whether a path's MTU has become smaller.
func (p *Paths) readICMPErrors() (changed bool) {
	buffer := make([]byte, 2048)
	for _, listener := range p.listeners {
		for range icmpBatch {
			n, err := unix.Read(listener, buffer)
			if err != nil {
				break
			}
			if q, ok := readError(buffer[:n]); ok && p.applyICMPError(q, time.Now()) {
				changed = true
			}
		}
	}
	return changed
}

// applyICMPError stores an error's MTU, if it quotes a packet as we send it: from the address that we would use, to
// a watched address, larger than that MTU, and not larger than the path was known to take. That leaves a host that
// knows both ends of a tunnel the power to make its packets as small as minMTU4 or minMTU6 for a while, as it has
// over any host's (RFC 5927 section 7).
func (p *Paths) applyICMPError(q quoted, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, watched := p.routes[q.destination]
	least := minMTU4
	if q.destination.Is6() {
		least = minMTU6
	}
	if !watched || r.Fault != None || r.Local != q.source || q.size > r.MTU || q.mtu >= q.size || q.mtu < least {
		return false
	}
	p.pathMTUs[q.destination] = pathMTU{q.mtu, now.Add(pmtuLifetime)}
	return true
}

// applyPathMTU applies the MTU that routers reported to a route.
func (p *Paths) applyPathMTU(addr netip.Addr, r *Route, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, known := p.pathMTUs[addr]
	switch {
	case !known:
	case now.After(n.until):
		delete(p.pathMTUs, addr)
	case r.Fault == None && n.mtu < r.MTU:
		r.MTU, r.PMTUReported = n.mtu, true
	}
}

// readError reads an ICMP error as a raw socket has it: with its IPv4 header, without that of
// IPv6. It is not ok where it is none about a tunnel packet that was too big.
func readError(b []byte) (q quoted, ok bool) {
	if len(b) > 0 && b[0]>>4 == 4 {
		header := int(b[0]&15) * 4
		if len(b) < header+8+20 || b[header] != unreachable4 || b[header+1] != tooBig4 {
			return q, false
		}
		q.mtu = int(binary.BigEndian.Uint16(b[header+6:]))
		return readQuoted4(b[header+8:], q)
	}
	if len(b) < 8+40 || b[0] != 2 || b[1] != 0 {
		return q, false
	}
	q.mtu = int(min(binary.BigEndian.Uint32(b[4:]), 1<<16))
	return readQuoted6(b[8:], q)
}

// readQuoted4 and readQuoted6 read the header of a tunnel packet as bpf/balancer/send/tunnel.h writes it.
func readQuoted4(b []byte, q quoted) (quoted, bool) {
	q.size = int(binary.BigEndian.Uint16(b[2:]))
	q.source, q.destination = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	// Without options, and not to be cut.
	return q, b[0] == 0x45 && b[6]&0xe0 == 0x40 && isTunnel(b[9], b[20:])
}

func readQuoted6(b []byte, q quoted) (quoted, bool) {
	q.size = 40 + int(binary.BigEndian.Uint16(b[4:]))
	q.source, q.destination = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	return q, b[0]>>4 == 6 && isTunnel(b[6], b[40:])
}

// isTunnel reports whether that protocol and the bytes behind the header are those of a tunnel.
func isTunnel(protocol byte, b []byte) bool {
	switch protocol {
	case unix.IPPROTO_IPIP, unix.IPPROTO_IPV6:
		return len(b) >= 1 && (b[0]>>4 == 4) == (protocol == unix.IPPROTO_IPIP)
	case unix.IPPROTO_UDP:
		return len(b) >= 4 && binary.BigEndian.Uint16(b) >= gueFirstSource && binary.BigEndian.Uint16(b[2:]) == guePort
	}
	return false
}
