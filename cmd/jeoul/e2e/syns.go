// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// SYNs sends the first packets of connections that are never completed.
type SYNs struct {
	sent  atomic.Uint64
	ended chan struct{}
}

// The source ports of SYNs, one after the other.
const firstSYNPort, lastSYNPort = 1024, 65535

// SendSYNs sends SYNs from a client to a service of IPv4, each from another port, at a rate per second (0: as fast as a
// core can) until the context ends.
func SendSYNs(tb testing.TB, ctx context.Context, client *lab.Host, to netip.AddrPort, perSecond int) *SYNs {
	tb.Helper()
	s := &SYNs{ended: make(chan struct{})}
	var socket int
	in(tb, client, func() (err error) {
		// The bytes that this type of socket sends include the IP header.
		socket, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	packets := make([][]byte, 0, lastSYNPort-firstSYNPort+1)
	for port := firstSYNPort; port <= lastSYNPort; port++ {
		packet, err := syn(netip.AddrPortFrom(client.IPv4, uint16(port)), to)
		if err != nil {
			tb.Fatal(err)
		}
		packets = append(packets, packet)
	}
	go func() {
		defer close(s.ended)
		defer unix.Close(socket)
		s.send(ctx, socket, packets, to, perSecond)
	}()
	return s
}

// send sends the packets in a cycle, as many as are due at a time.
func (s *SYNs) send(ctx context.Context, socket int, packets [][]byte, to netip.AddrPort, perSecond int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	where := &unix.SockaddrInet4{Addr: to.Addr().As4()}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ctx.Err() == nil; {
		due := uint64(time.Since(began).Seconds() * float64(perSecond))
		if n := s.sent.Load(); perSecond > 0 && n >= due {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			continue
		}
		// A packet that a full queue drops is lost, as on any network.
		_ = unix.Sendto(socket, packets[s.sent.Load()%uint64(len(packets))], 0, where)
		s.sent.Add(1)
	}
}

// Sent returns the number of SYNs that were sent until now.
func (s *SYNs) Sent() uint64 { return s.sent.Load() }

// Wait waits until the sender has ended, which its context ends.
func (s *SYNs) Wait() { <-s.ended }

// syn builds a SYN.
func syn(from, to netip.AddrPort) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(),
		DstIP: to.Addr().AsSlice()}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()),
		Seq: uint32(from.Port()) << 16, SYN: true, Window: 64240}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip,
		tcp)
	return buffer.Bytes(), err
}

// Arrivals records when SYNs from a client arrived at a host, by the kernel's time stamps.
type Arrivals struct {
	socket int
	from   netip.Addr
	// last is the time of the last SYN, in nanoseconds since 1970.
	last, count atomic.Int64
	stop        atomic.Bool
	ended       chan struct{}
}

// arrivalsPoll is how long a reader waits for a packet before it checks whether it must end.
const arrivalsPoll = 50 * time.Millisecond

// NoteArrivals starts recording the SYNs of IPv4 from a client that arrive at a host.
func NoteArrivals(tb testing.TB, host *lab.Host, from netip.Addr) *Arrivals {
	tb.Helper()
	a := &Arrivals{from: from, ended: make(chan struct{})}
	in(tb, host, func() error { return a.open(host.Interface) })
	go a.read()
	tb.Cleanup(func() {
		a.stop.Store(true)
		<-a.ended
		unix.Close(a.socket)
	})
	return a
}

// open runs inside of the interface's namespace.
func (a *Arrivals) open(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	if a.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	look := unix.NsecToTimeval(arrivalsPoll.Nanoseconds())
	four := uint16(unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8) // network byte order
	return errors.Join(
		unix.SetsockoptInt(a.socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer/16),
		unix.SetsockoptInt(a.socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptTimeval(a.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &look),
		unix.SetsockoptInt(a.socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(a.socket, &unix.SockaddrLinklayer{Protocol: four, Ifindex: link.Index}))
}

func (a *Arrivals) read() {
	defer close(a.ended)
	packet, control := make([]byte, 64), make([]byte, 128)
	for !a.stop.Load() {
		n, m, _, _, err := unix.Recvmsg(a.socket, packet, control, 0)
		if err != nil {
			continue // nothing came for a while
		}
		if a.wanted(packet[:n]) {
			if at, ok := stamp(control[:m]); ok {
				a.last.Store(at)
				a.count.Add(1)
			}
		}
	}
}

// wanted reports whether a packet of IPv4 is a SYN from the client.
func (a *Arrivals) wanted(packet []byte) bool {
	const header, flags, syn, ack = 20, 13, 0x02, 0x10
	if len(packet) <= header+flags || packet[0] != 0x45 || packet[9] != unix.IPPROTO_TCP ||
		netip.AddrFrom4([4]byte(packet[12:16])) != a.from {
		return false
	}
	return packet[header+flags]&(syn|ack) == syn
}

// stamp reads the kernel's time stamp of a packet.
func stamp(control []byte) (int64, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			seconds, nanoseconds := int64(binary.NativeEndian.Uint64(m.Data)),
				int64(binary.NativeEndian.Uint64(m.Data[8:]))
			return seconds*int64(time.Second) + nanoseconds, true
		}
	}
	return 0, false
}

// Last returns the time when the last SYN arrived; the zero time if none has.
func (a *Arrivals) Last() time.Time {
	if at := a.last.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Count returns the number of SYNs that have arrived.
func (a *Arrivals) Count() int64 { return a.count.Load() }
