// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// icmp sends an echo request, and waits for its reply.
func (a *ask) icmp() health.Answer {
	if a.endpoint.Via == lb.ViaVIP {
		return a.pingVIP()
	}
	to := netip.AddrPortFrom(a.endpoint.Address, 0)
	conn, err := connect(a.ctx, "ping", a.check.Source, to)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		// The group is not in net.ipv4.ping_group_range.
		conn, err = connect(a.ctx, "raw", a.check.Source, to)
	}
	if err != nil {
		return a.answerOf(err)
	}
	return a.ping(conn)
}

// ping sends an echo request on the socket, waits for the reply, and closes the socket.
func (a *ask) ping(conn net.Conn) health.Answer {
	defer conn.Close()
	echo := newEcho(a.endpoint.Address)
	if _, err := conn.Write(echo.request()); err != nil {
		return a.answerOf(err)
	}
	a.step("request", "sent an echo request", false)
	buffer := make([]byte, 2048)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return a.answerOf(err)
		}
		if echo.answers(buffer[:n]) {
			return health.Pass("echo reply")
		}
		// A raw socket also gets the answers to others' requests. An endpoint that sends without end does not keep us:
		// the deadline is ours.
		if a.ctx.Err() != nil {
			return health.Silence(a.check.Timeout)
		}
	}
}

func (a *ask) pingVIP() health.Answer {
	if a.dialer == nil {
		return trouble(errNoDataPlane)
	}
	if err := a.dialer.Ping(a.ctx, a.endpoint.Backend); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return health.Silence(a.check.Timeout)
		}
		return a.answerOf(err)
	}
	return health.Pass("echo reply")
}

// echo is a request that is told from others by random data: the kernel may write another
// identifier.
type echo struct {
	six bool
	msg icmp.Echo
}

func newEcho(to netip.Addr) echo {
	random := make([]byte, 20)
	rand.Read(random) // never fails: see crypto/rand
	return echo{six: !to.Unmap().Is4(), msg: icmp.Echo{
		ID: int(binary.BigEndian.Uint16(random)), Seq: int(binary.BigEndian.Uint16(random[2:])), Data: random[4:],
	}}
}

func (e echo) request() []byte {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &e.msg}
	if e.six {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	packet, err := m.Marshal(nil) // ICMPv6's checksum is the kernel's
	if err != nil {
		panic(err) // cannot be: an echo always has room
	}
	return packet
}

// answers reports whether a packet is the reply to the request. A raw IPv4 socket has the IP header before it.
func (e echo) answers(packet []byte) bool {
	protocol, reply := 1, icmp.Type(ipv4.ICMPTypeEchoReply)
	if e.six {
		protocol, reply = 58, ipv6.ICMPTypeEchoReply
	} else if len(packet) > 0 && packet[0]>>4 == 4 {
		header := int(packet[0]&15) * 4
		if header > len(packet) {
			return false
		}
		packet = packet[header:]
	}
	m, err := icmp.ParseMessage(protocol, packet)
	if err != nil || m.Type != reply {
		return false
	}
	body, ok := m.Body.(*icmp.Echo)
	return ok && body.Seq == e.msg.Seq && bytes.Equal(body.Data, e.msg.Data)
}
