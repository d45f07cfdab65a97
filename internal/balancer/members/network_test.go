// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// paper is a network without a kernel, for members under testing/synctest: datagrams and connections arrive at once,
// in order, and nobody is late.
type paper struct {
	mu    sync.Mutex
	there map[netip.AddrPort]*mailbox
}

// bubble runs a test in a bubble of time, with a network of its own.
func bubble(t *testing.T, test func(t *testing.T, n *network)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The last of all: timers that memberlist still has when it has ended run out.
		t.Cleanup(func() { time.Sleep(bound) })
		n := newNetwork(t)
		n.paper = &paper{there: map[netip.AddrPort]*mailbox{}}
		test(t, n)
	})
}

// listen is a network of Options.
func (p *paper) listen(config *memberlist.NetTransportConfig) (memberlist.NodeAwareTransport, dial, error) {
	at := netip.AddrPortFrom(netip.MustParseAddr(config.BindAddrs[0]), uint16(config.BindPort))
	box := &mailbox{paper: p, at: at, packets: make(chan *memberlist.Packet, 4096), streams: make(chan net.Conn, 64)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.there[at] != nil {
		return nil, nil, syscall.EADDRINUSE
	}
	p.there[at] = box
	return box, p.dial, nil
}

// send delivers a datagram, if somebody listens.
func (p *paper) send(from netip.AddrPort, to string, text []byte) error {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if box := p.there[at]; box != nil {
		select {
		case box.packets <- &memberlist.Packet{
			Buf: bytes.Clone(text), From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now()}:
		default: // a full queue loses packets
		}
	}
	return nil
}

func (p *paper) dial(from netip.Addr, to string, _ time.Duration) (net.Conn, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	box := p.there[at]
	if box == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	own := netip.AddrPortFrom(from, 40_000)
	select {
	case box.streams <- pipe{far, at, own}:
		return pipe{near, own, at}, nil
	default:
		return nil, errors.Join(near.Close(), far.Close(), syscall.ECONNREFUSED)
	}
}

// pipe is an end of a connection.
type pipe struct {
	net.Conn
	local, remote netip.AddrPort
}

func (p pipe) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(p.local) }
func (p pipe) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(p.remote) }

// mailbox is an address that is listened on.
type mailbox struct {
	paper   *paper
	at      netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func (b *mailbox) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return b.at.Addr().AsSlice(), int(b.at.Port()), nil
}

func (b *mailbox) WriteTo(text []byte, to string) (time.Time, error) {
	return time.Now(), b.paper.send(b.at, to, text)
}

func (b *mailbox) WriteToAddress(text []byte, to memberlist.Address) (time.Time, error) {
	return b.WriteTo(text, to.Addr)
}

func (b *mailbox) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	return b.paper.dial(b.at.Addr(), to, timeout)
}

func (b *mailbox) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return b.DialTimeout(to.Addr, timeout)
}

func (b *mailbox) PacketCh() <-chan *memberlist.Packet { return b.packets }
func (b *mailbox) StreamCh() <-chan net.Conn           { return b.streams }

func (b *mailbox) IngestPacket(net.Conn, net.Addr, time.Time, bool) error {
	return errors.ErrUnsupported
}
func (b *mailbox) IngestStream(net.Conn) error { return errors.ErrUnsupported }

func (b *mailbox) Shutdown() error {
	b.paper.mu.Lock()
	delete(b.paper.there, b.at)
	b.paper.mu.Unlock()
	for {
		select {
		case c := <-b.streams:
			c.Close()
		default:
			return nil
		}
	}
}
