// SPDX-License-Identifier: Apache-2.0

package checknet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Ping sends an echo request to a target's VIP, and waits for the reply until the context ends.
// Ports of the target do not count.
func (n *Net) Ping(ctx context.Context, t Target) error {
	protocol := unix.IPPROTO_ICMP
	if t.Remote.Addr().Is6() {
		protocol = unix.IPPROTO_ICMPV6
	}
	id, ok := n.ports.allocate(t, protocol)
	if !ok {
		return dialError("icmp", t, errNoPort)
	}
	defer n.ports.release(id)
	c, err := n.openPing(t, protocol)
	if err != nil {
		return dialError("icmp", t, localError(err))
	}
	defer c.Close()
	if deadline, is := ctx.Deadline(); is {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := sendEcho(c, protocol, int(id.port)); err != nil {
		if ctx.Err() != nil {
			err = contextError(ctx)
		}
		return dialError("icmp", t, err)
	}
	return nil
}

// openPing opens a socket that takes ICMP from the VIP.
func (n *Net) openPing(t Target, protocol int) (net.Conn, error) {
	fd, err := n.socket(t, unix.SOCK_RAW, protocol)
	if err != nil {
		return nil, err
	}
	var remote unix.Sockaddr = &unix.SockaddrInet4{}
	if a := t.Remote.Addr(); a.Is4() {
		remote = &unix.SockaddrInet4{Addr: a.As4()}
	} else {
		remote = &unix.SockaddrInet6{Addr: a.As16()}
	}
	file := os.NewFile(uintptr(fd), "")
	defer file.Close()
	if err := unix.Connect(fd, remote); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FileConn(file)
}

// sendEcho asks, and reads until the reply comes.
func sendEcho(c net.Conn, protocol, id int) error {
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if protocol == unix.IPPROTO_ICMPV6 {
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	// The kernel sums ICMPv6 up.
	data, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: 1, Data: []byte("jeoul")}}).Marshal(nil)
	if err != nil {
		return fmt.Errorf("making an echo request: %w", err)
	}
	if _, err := c.Write(data); err != nil {
		return err
	}
	buffer := make([]byte, deviceMTU)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return err
		}
		message, err := icmp.ParseMessage(protocol, payload(buffer[:n], protocol))
		if err != nil {
			continue // not ours: the data plane lets only whole replies to checks through
		}
		if echo, is := message.Body.(*icmp.Echo); is && message.Type == reply && echo.ID == id {
			return nil
		}
		if _, is := message.Body.(*icmp.DstUnreach); is {
			return errUnreachable
		}
	}
}

// errUnreachable: a router or the backend's host says so.
var errUnreachable = errors.New("destination unreachable")

// payload returns the bytes behind the IP header, which the kernel includes with IPv4 only.
func payload(packet []byte, protocol int) []byte {
	if protocol != unix.IPPROTO_ICMP || len(packet) == 0 {
		return packet
	}
	return packet[min(len(packet), int(packet[0]&15)*4):]
}
