// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// peerTransport is a transport that receives from and sends to the configured peers only: other packets are dropped
// before memberlist reads them. Otherwise, a removed peer would be alive to memberlist as long as it answers.
type peerTransport struct {
	memberlist.NodeAwareTransport
	// running ends with Run, and with it dials in progress and connections.
	running context.Context
	dial    dial
	// local is the source address of connections, which identifies this member to others.
	local   netip.Addr
	allowed func(netip.Addr) bool
	refused func(from netip.Addr)
	packets chan *memberlist.Packet
	streams chan net.Conn
	stop    chan struct{}
	once    sync.Once
	group   sync.WaitGroup
}

// dial opens a connection from an address.
type dial func(ctx context.Context, from netip.Addr, to string, timeout time.Duration) (net.Conn, error)

// kernelNetwork is memberlist's own transport, and connections by TCP.
func kernelNetwork(config *memberlist.NetTransportConfig) (memberlist.NodeAwareTransport, dial, error) {
	transport, err := memberlist.NewNetTransport(config)
	if err != nil {
		return nil, nil, err
	}
	return transport, dialTCP, nil
}

func dialTCP(ctx context.Context, from netip.Addr, to string, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: from.AsSlice(), Zone: from.Zone()}}
	return dialer.DialContext(ctx, "tcp", to)
}

func newPeerTransport(running context.Context, inner memberlist.NodeAwareTransport, dial dial, local netip.Addr,
	allowed func(netip.Addr) bool, refused func(netip.Addr)) *peerTransport {
	g := &peerTransport{NodeAwareTransport: inner, running: running, dial: dial, local: local,
		allowed: allowed, refused: refused, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		stop: make(chan struct{})}
	g.group.Go(g.forwardPackets)
	g.group.Go(g.forwardStreams)
	return g
}

func (g *peerTransport) isPeer(from net.Addr) bool {
	at, err := netip.ParseAddrPort(from.String())
	if err == nil && g.allowed(at.Addr().Unmap().WithZone("")) {
		return true
	}
	g.refused(at.Addr().Unmap())
	return false
}

func (g *peerTransport) forwardPackets() {
	for {
		select {
		case p := <-g.NodeAwareTransport.PacketCh():
			if !g.isPeer(p.From) {
				continue
			}
			select {
			case g.packets <- p:
			case <-g.stop:
				return
			}
		case <-g.stop:
			return
		}
	}
}

func (g *peerTransport) forwardStreams() {
	for {
		select {
		case c := <-g.NodeAwareTransport.StreamCh():
			if !g.isPeer(c.RemoteAddr()) {
				c.Close()
				continue
			}
			select {
			case g.streams <- c:
			case <-g.stop:
				c.Close()
				return
			}
		case <-g.stop:
			return
		}
	}
}

// PacketCh has the packets of peers.
func (g *peerTransport) PacketCh() <-chan *memberlist.Packet { return g.packets }

// StreamCh has the connections of peers.
func (g *peerTransport) StreamCh() <-chan net.Conn { return g.streams }

// WriteTo sends a packet to a peer; packets to others are dropped.
func (g *peerTransport) WriteTo(packet []byte, to string) (time.Time, error) {
	return g.WriteToAddress(packet, memberlist.Address{Addr: to})
}

// WriteToAddress is the same.
func (g *peerTransport) WriteToAddress(packet []byte, to memberlist.Address) (time.Time, error) {
	if !g.isPeerAddress(to.Addr) {
		return time.Now(), nil
	}
	return g.NodeAwareTransport.WriteToAddress(packet, to)
}

// isPeerAddress reports whether an address with its port is a peer's.
func (g *peerTransport) isPeerAddress(to string) bool {
	at, err := netip.ParseAddrPort(to)
	return err == nil && g.allowed(at.Addr().Unmap().WithZone(""))
}

// DialTimeout opens a connection to a peer, which ends after the timeout unless memberlist sets another deadline: it
// sets none for the states that it sends, and a peer that stands still would never take them. Error: errNoPeer.
func (g *peerTransport) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	if !g.isPeerAddress(to) {
		return nil, errNoPeer
	}
	ctx := g.running
	if ctx.Err() != nil { // only the message of leaving is sent now
		ctx, timeout = context.WithoutCancel(ctx), min(timeout, leaveTimeout)
	}
	deadline := time.Now().Add(timeout)
	conn, err := g.dial(ctx, g.local, to, timeout)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return endingConn{conn, context.AfterFunc(ctx, func() { conn.Close() })}, nil
}

// endingConn is a connection that is closed when a context ends, unless it was closed before.
type endingConn struct {
	net.Conn
	// forget has the context's end close nothing.
	forget func() bool
}

// Close closes the connection.
func (c endingConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// DialAddressTimeout is the same.
func (g *peerTransport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return g.DialTimeout(a.Addr, timeout)
}

// Shutdown ends the transport within. Packets that it still delivers are drained, because it waits for that.
func (g *peerTransport) Shutdown() error {
	g.once.Do(func() { close(g.stop) })
	g.group.Wait()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-g.NodeAwareTransport.PacketCh():
			case c := <-g.NodeAwareTransport.StreamCh():
				c.Close()
			case <-done:
				return
			}
		}
	}()
	defer close(done)
	return g.NodeAwareTransport.Shutdown()
}
