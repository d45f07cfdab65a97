// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"context"
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

// fakeNetwork is a network without a kernel, for members under testing/synctest.
type fakeNetwork struct {
	mu        sync.Mutex
	listeners map[netip.AddrPort]*fakeListener
}

// inBubble runs a test in a bubble of time, with a network of its own.
func inBubble(t *testing.T, test func(t *testing.T, n *network)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The last of all: timers that memberlist still has when it has ended run out.
		t.Cleanup(func() { time.Sleep(testTimeout) })
		n := newNetwork(t)
		n.fake = &fakeNetwork{listeners: map[netip.AddrPort]*fakeListener{}}
		test(t, n)
	})
}

// listen is a network of Options.
func (p *fakeNetwork) listen(config *memberlist.NetTransportConfig) (memberlist.NodeAwareTransport, dial, error) {
	at := netip.AddrPortFrom(netip.MustParseAddr(config.BindAddrs[0]), uint16(config.BindPort))
	box := &fakeListener{network: p, at: at, packets: make(chan *memberlist.Packet, 4096), streams: make(chan net.Conn,
		64)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners[at] != nil {
		return nil, nil, syscall.EADDRINUSE
	}
	p.listeners[at] = box
	return box, p.dial, nil
}

// send delivers a datagram, if somebody listens.
func (p *fakeNetwork) send(from netip.AddrPort, to string, text []byte) error {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if box := p.listeners[at]; box != nil {
		select {
		case box.packets <- &memberlist.Packet{
			Buf: bytes.Clone(text), From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now()}:
		default: // a full queue loses packets
		}
	}
	return nil
}

func (p *fakeNetwork) dial(_ context.Context, from netip.Addr, to string, _ time.Duration) (net.Conn, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	box := p.listeners[at]
	if box == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	own := netip.AddrPortFrom(from, 40_000)
	select {
	case box.streams <- fakeConn{far, at, own}:
		return fakeConn{near, own, at}, nil
	default:
		return nil, errors.Join(near.Close(), far.Close(), syscall.ECONNREFUSED)
	}
}

// fakeConn is an end of a connection.
type fakeConn struct {
	net.Conn
	local, remote netip.AddrPort
}

func (p fakeConn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(p.local) }
func (p fakeConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(p.remote) }

// fakeListener is an address that is listened on.
type fakeListener struct {
	network *fakeNetwork
	at      netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func (b *fakeListener) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return b.at.Addr().AsSlice(), int(b.at.Port()), nil
}

func (b *fakeListener) WriteTo(text []byte, to string) (time.Time, error) {
	return time.Now(), b.network.send(b.at, to, text)
}

func (b *fakeListener) WriteToAddress(text []byte, to memberlist.Address) (time.Time, error) {
	return b.WriteTo(text, to.Addr)
}

func (b *fakeListener) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	return b.network.dial(context.Background(), b.at.Addr(), to, timeout)
}

func (b *fakeListener) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return b.DialTimeout(to.Addr, timeout)
}

func (b *fakeListener) PacketCh() <-chan *memberlist.Packet { return b.packets }
func (b *fakeListener) StreamCh() <-chan net.Conn           { return b.streams }

func (b *fakeListener) IngestPacket(net.Conn, net.Addr, time.Time, bool) error {
	return errors.ErrUnsupported
}
func (b *fakeListener) IngestStream(net.Conn) error { return errors.ErrUnsupported }

func (b *fakeListener) Shutdown() error {
	b.network.mu.Lock()
	delete(b.network.listeners, b.at)
	b.network.mu.Unlock()
	for {
		select {
		case c := <-b.streams:
			c.Close()
		default:
			return nil
		}
	}
}
