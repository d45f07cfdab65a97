// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

const (
	// captureBytes bounds the captured part of a packet: the headers, and the packet that an ICMP error quotes.
	captureBytes = 512
	// captureBuffer is the size of the capture's socket buffer, in bytes of the kernel's memory: more than a test sends
	// at a time, so that no packet is missed where the reader gets little of a busy CPU. Memory is taken only for
	// packets that wait.
	captureBuffer = 1 << 30
)

// Capture captures every packet that arrives on an interface.
type Capture struct {
	socket *os.File
	raw    int
	look   func(gopacket.Packet)
	ended  chan struct{}

	mu      sync.Mutex
	packets int
}

// StartCapture calls look, from one goroutine, with every packet that arrives on an interface inside of where, until
// Stop.
func StartCapture(tb testing.TB, where Inside, name string, look func(gopacket.Packet)) *Capture {
	tb.Helper()
	c := &Capture{look: look, ended: make(chan struct{})}
	in(tb, where, func() error { return c.open(name) })
	tb.Cleanup(func() { c.socket.Close() })
	go c.read()
	return c
}

// open runs inside of the interface's namespace.
func (c *Capture) open(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	// Without a protocol, so that nothing arrives before the socket is bound.
	c.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	c.socket = os.NewFile(uintptr(c.raw), "packets of "+name)
	all := uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8) // network byte order
	return errors.Join(
		unix.SetsockoptInt(c.raw, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer/2), // the kernel doubles it
		unix.SetsockoptInt(c.raw, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(c.raw, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
}

func (c *Capture) read() {
	defer close(c.ended)
	for {
		frame := make([]byte, captureBytes)
		n, err := c.socket.Read(frame)
		if err != nil {
			return
		}
		c.look(gopacket.NewPacket(frame[:n], layers.LayerTypeEthernet,
			gopacket.DecodeOptions{Lazy: true, NoCopy: true}))
		c.mu.Lock()
		c.packets++
		c.mu.Unlock()
	}
}

// captureLag is the number of bytes that may wait before AwaitReader holds traffic back. Packets in flight must then
// still fit the buffer.
const captureLag = captureBuffer / 16

// AwaitReader waits until few packets wait for look, so that a test that sends much can wait while the reader gets
// little of a busy CPU. It returns false if the context ends first.
func (c *Capture) AwaitReader(ctx context.Context) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for c.backlog() > captureLag {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return ctx.Err() == nil
}

// backlog returns the number of bytes of the kernel's memory that wait to be read; 0 when the capture has ended.
func (c *Capture) backlog() uint32 {
	var info [unix.SK_MEMINFO_VARS]uint32 // SO_MEMINFO returns them: linux/sock_diag.h
	size := uint32(unsafe.Sizeof(info))
	_, _, failed := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(c.raw), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if failed != 0 {
		return 0
	}
	return info[unix.SK_MEMINFO_RMEM_ALLOC]
}

// Packets returns the number of packets that look has handled.
func (c *Capture) Packets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.packets
}

// Stop waits until all packets were handled, and ends the capture. A missed packet fails the test.
func (c *Capture) Stop(tb testing.TB) {
	tb.Helper()
	before := -1
	testenv.Eventually(tb, WaitLimit, "all packets that came were looked at", func() bool {
		now := c.Packets()
		quiet := now == before && !c.waiting(tb)
		before = now
		return quiet
	})
	statistics, err := unix.GetsockoptTpacketStats(c.raw, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		tb.Errorf("read the statistics of the capture: %v", err)
	} else if statistics.Drops > 0 {
		tb.Errorf("%d packets came too fast to be looked at: this has not seen everything", statistics.Drops)
	}
	if err := c.socket.SetReadDeadline(time.Now()); err != nil {
		tb.Errorf("end the capture: %v", err)
	}
	<-c.ended
}

// waiting reports whether packets wait to be read.
func (c *Capture) waiting(tb testing.TB) bool {
	tb.Helper()
	poll := []unix.PollFd{{Fd: int32(c.raw), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		tb.Fatalf("look for packets: %v", err)
	}
	return n > 0
}
