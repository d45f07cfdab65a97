// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// Wire sends and receives complete Ethernet frames on an interface.
type Wire struct {
	tb    testing.TB
	fd    int
	index int
}

// OpenWire opens a packet socket on an interface in ns. It receives the frames that arrive from now on.
func OpenWire(tb testing.TB, ns *namespace.Namespace, name string) *Wire {
	tb.Helper()
	w := &Wire{tb: tb}
	In(tb, ns, func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		w.index = link.Index
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a packet socket: %w", err)
		}
		return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: w.index})
	})
	tb.Cleanup(func() { unix.Close(w.fd) })
	return w
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// Send sends a frame, with lengths and checksums filled in.
func (w *Wire) Send(parts ...gopacket.SerializableLayer) {
	w.tb.Helper()
	frame := testpacket.Serialize(w.tb, parts...)
	if err := unix.Sendto(w.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.index}); err != nil {
		w.tb.Fatalf("send a frame: %v", err)
	}
}

// The limit of the wait for a frame, and the time after which a frame that may have been dropped is sent again: frames
// of all namespaces share a queue of each core (net.core.netdev_max_backlog), which another test's flood may have
// filled.
const (
	wireTimeout = time.Minute
	sendAgain   = time.Second
)

// Next returns the next incoming frame for which want returns true. It fails the test if there is none within a minute.
func (w *Wire) Next(what string, want func(gopacket.Packet) bool) gopacket.Packet {
	w.tb.Helper()
	packet := w.within(wireTimeout, want)
	if packet == nil {
		w.tb.Fatalf("no %s came within %v", what, wireTimeout)
	}
	return packet
}

// Answer is Next for the answer to a packet that send sends, each second until the answer arrives, for up to a minute.
func (w *Wire) Answer(what string, send func(), want func(gopacket.Packet) bool) gopacket.Packet {
	w.tb.Helper()
	for deadline := time.Now().Add(wireTimeout); time.Now().Before(deadline); {
		send()
		if packet := w.within(sendAgain, want); packet != nil {
			return packet
		}
	}
	w.tb.Fatalf("no %s came within %v, in which what asks for it was sent again and again", what, wireTimeout)
	return nil
}

// within returns the next incoming frame for which want returns true, or nil if there is none within the bound.
func (w *Wire) within(bound time.Duration, want func(gopacket.Packet) bool) gopacket.Packet {
	w.tb.Helper()
	for deadline := time.Now().Add(bound); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		if packet := w.receive(left); packet != nil && want(packet) {
			return packet
		}
	}
}

// receive returns one incoming frame, or nil if the bound has passed or the frame was an outgoing one.
func (w *Wire) receive(bound time.Duration) gopacket.Packet {
	w.tb.Helper()
	poll := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, int(bound.Milliseconds())+1); err == unix.EINTR || (err == nil && n == 0) {
		return nil
	} else if err != nil {
		w.tb.Fatalf("wait for a frame: %v", err)
	}
	frame := make([]byte, 65536)
	n, from, err := unix.Recvfrom(w.fd, frame, 0)
	if err != nil {
		w.tb.Fatalf("receive a frame: %v", err)
	}
	if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
		return nil
	}
	return gopacket.NewPacket(frame[:n], layers.LayerTypeEthernet, gopacket.NoCopy)
}
