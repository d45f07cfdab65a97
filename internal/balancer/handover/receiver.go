// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// maxWriteBatch bounds the flows that are written to the data plane at a time.
const maxWriteBatch = 2048

// acceptLoop accepts connections of peers.
func (e *Exchange) acceptLoop(ctx context.Context, group *sync.WaitGroup) {
	for {
		conn, err := e.options.Listener.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			// For example, no file descriptors are left.
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		from := addressOf(conn.RemoteAddr())
		if err := e.checkConn(conn, from); err != nil {
			conn.Close()
			e.options.Refused(from, err)
			continue
		}
		group.Go(func() {
			defer e.dropConn(conn)
			err := setTimeouts(conn)
			if err == nil {
				err = e.receive(tls.Server(conn, e.identity()))
			}
			if err == nil || ctx.Err() != nil {
				return
			}
			e.options.Log.Debug("a connection of the members' port has ended", "from", conn.RemoteAddr(), "error", err)
			if !isClosed(err) {
				e.options.Refused(from, err)
			}
		})
	}
}

// addressOf is the address of the other end of a connection.
func addressOf(end net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(end.String())
	return at.Addr().Unmap().WithZone("")
}

// isClosed reports whether an error is only the end or the break of a connection.
func isClosed(err error) bool {
	var broken *net.OpError
	// A TLS alert of either end is an OpError, too, but a refusal.
	return errors.Is(err, io.EOF) || errors.As(err, &broken) && broken.Op != "remote error" &&
		broken.Op != "local error"
}

// checkConn refuses a further connection: ErrNoPeer, errTooManyConnections.
func (e *Exchange) checkConn(conn net.Conn, from netip.Addr) error {
	if !e.options.IsPeer(from) {
		return ErrNoPeer
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.conns) >= maxConnections {
		return errTooManyConnections
	}
	e.conns[conn] = struct{}{}
	return nil
}

func (e *Exchange) dropConn(conn net.Conn) {
	conn.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, conn)
	delete(e.authenticated, conn)
}

// receive handles the messages of a connection until it ends.
func (e *Exchange) receive(conn *tls.Conn) error {
	name, err := e.handshake(conn)
	if err != nil {
		return err
	}
	if err := e.checkName(name, addressOf(conn.RemoteAddr())); err != nil {
		return err
	}
	r := &receiver{exchange: e, conn: conn, reader: bufio.NewReaderSize(conn, 64<<10), status: e.peerConnected(name),
		resend: make(chan struct{}, 1), requestEarly: make(chan struct{}, 1)}
	defer e.peerDisconnected(r.status)
	defer e.startRequests(r)()
	for {
		if err := r.handleMessage(); err != nil {
			return fmt.Errorf("receiving flows from the member %s: %w", name, err)
		}
	}
}

// checkName refuses a connection under the name of a member with another address: ErrName.
func (e *Exchange) checkName(name string, from netip.Addr) error {
	for _, peer := range e.options.Group.Peers() {
		if peer.Name == name && peer.Address.Addr() != from {
			return fmt.Errorf("%w: %s is at %s", ErrName, name, peer.Address.Addr())
		}
	}
	return nil
}

// peerConnected returns the state of a peer whose connection begins. A peer that connects can be connected to as well,
// so its sender tries at once.
func (e *Exchange) peerConnected(name string) *ReceiverStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.senders[name]; s != nil {
		s.reconnectNow()
	}
	h := &ReceiverStatus{Name: name, Connected: true, Refused: map[string]uint64{}}
	e.received[name] = h
	return h
}

// peerDisconnected records that a peer's connection has ended. The state of a peer that is no member is removed with
// it, because it can use another name each time.
func (e *Exchange) peerDisconnected(h *ReceiverStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h.Connected = false
	if e.senders[h.Name] == nil && e.received[h.Name] == h {
		delete(e.received, h.Name)
	}
}

func (r *receiver) countFlows(do func(*ReceiverStatus)) {
	r.exchange.mu.Lock()
	defer r.exchange.mu.Unlock()
	do(r.status)
}

// handleMessage reads one message, and handles it.
func (r *receiver) handleMessage() error {
	k, body, err := readMessage(r.reader)
	if err != nil {
		return err
	}
	switch k {
	case kindFlows4, kindFlows6:
		if r.flows, err = parseFlows(r.flows, body, k == kindFlows4); err != nil {
			return err
		}
		if len(r.flows) >= maxWriteBatch || r.reader.Buffered() < headerBytes {
			return r.writeFlows()
		}
		return nil
	case kindBase:
		if err := r.writeFlows(); err != nil {
			return err
		}
		return r.addBase(body)
	case kindAllSent:
		if err := r.writeFlows(); err != nil {
			return err
		}
		r.countFlows(func(h *ReceiverStatus) { h.Complete = true })
		r.exchange.notifyProgress()
		return nil
	}
	return fmt.Errorf("%w: of kind %d, which does not belong here", ErrDamaged, k)
}

// writeFlows hands flows to the data plane, and acknowledges them.
func (r *receiver) writeFlows() error {
	if len(r.flows) == 0 {
		return nil
	}
	done, err := r.exchange.options.DataPlane.MergeFlows(r.flows)
	if err != nil {
		return err
	}
	r.acked += uint64(len(r.flows))
	r.flows = r.flows[:0]
	r.countFlows(func(h *ReceiverStatus) {
		h.Added += uint64(done.New)
		h.Followed += uint64(done.Known)
		for reason, n := range done.Refused {
			h.Refused[reason] += uint64(n)
		}
		r.missed = r.missed || done.Missed > 0
	})
	if err := r.conn.SetWriteDeadline(time.Now().Add(r.exchange.options.stallTimeout)); err != nil {
		return err
	}
	_, err = r.conn.Write(appendMessage(nil, kindAck, binary.BigEndian.AppendUint64(nil, r.acked)))
	return err
}

func (r *receiver) addBase(body []byte) error {
	var base lb.Base
	if err := json.Unmarshal(body, &base); err != nil {
		return fmt.Errorf("%w: a base: %v", ErrDamaged, err)
	}
	err := r.exchange.options.DataPlane.MergeBase(base)
	r.countFlows(func(h *ReceiverStatus) {
		if err != nil {
			h.RefusedBases++
		} else {
			h.Bases++
		}
	})
	if err != nil {
		r.exchange.options.Log.Debug("a member's base is not taken", "member", r.status.Name, "error", err)
	}
	return nil
}

// Status returns the state of each peer, by name, of the sending and of the receiving direction.
func (e *Exchange) Status() (sent []SenderStatus, received []ReceiverStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.senders {
		sent = append(sent, s.status())
	}
	for _, h := range e.received {
		one := *h
		one.Refused = map[string]uint64{}
		for reason, n := range h.Refused {
			one.Refused[reason] = n
		}
		received = append(received, one)
	}
	slices.SortFunc(sent, func(a, b SenderStatus) int { return cmp.Compare(a.Peer.Name, b.Peer.Name) })
	slices.SortFunc(received, func(a, b ReceiverStatus) int { return cmp.Compare(a.Name, b.Name) })
	return sent, received
}
