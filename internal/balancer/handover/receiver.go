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

// takeAtOnce is how many flows are taken at a time at most, where more have come.
const takeAtOnce = 2048

// accept takes connections of peers.
func (e *Exchange) accept(ctx context.Context, group *sync.WaitGroup) {
	for {
		conn, err := e.options.Listener.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			// No files are left, or the like.
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		from := addressOf(conn.RemoteAddr())
		if err := e.admit(conn, from); err != nil {
			conn.Close()
			e.options.Refused(from, err)
			continue
		}
		group.Go(func() {
			defer e.leave(conn)
			err := endSilence(conn)
			if err == nil {
				err = e.receive(tls.Server(conn, e.identity()))
			}
			if err == nil || ctx.Err() != nil {
				return
			}
			e.options.Log.Debug("a connection of the members' port has ended", "from", conn.RemoteAddr(), "error", err)
			if !isEnd(err) {
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

// isEnd says whether a connection has only ended, or broken.
func isEnd(err error) bool {
	var broken *net.OpError
	// A refusal by either end is such an error of TLS, too.
	return errors.Is(err, io.EOF) || errors.As(err, &broken) && broken.Op != "remote error" &&
		broken.Op != "local error"
}

// admit says why there may not be one more connection: ErrNoPeer, errCrowd.
func (e *Exchange) admit(conn net.Conn, from netip.Addr) error {
	if !e.options.IsPeer(from) {
		return ErrNoPeer
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.conns) >= mostConnections {
		return errCrowd
	}
	e.conns[conn] = struct{}{}
	return nil
}

func (e *Exchange) leave(conn net.Conn) {
	conn.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, conn)
	delete(e.shaken, conn)
}

// receive takes the messages of a connection until it ends.
func (e *Exchange) receive(conn *tls.Conn) error {
	name, err := e.shake(conn)
	if err != nil {
		return err
	}
	if err := e.checkName(name, addressOf(conn.RemoteAddr())); err != nil {
		return err
	}
	r := &receiver{exchange: e, conn: conn, reader: bufio.NewReaderSize(conn, 64<<10), heard: e.peerConnected(name),
		again: make(chan struct{}, 1), requestEarly: make(chan struct{}, 1)}
	defer e.peerDisconnected(r.heard)
	defer e.listens(r)()
	for {
		if err := r.next(); err != nil {
			return fmt.Errorf("what the member %s tells of flows: %w", name, err)
		}
	}
}

// checkName refuses a connection under the name of a member that is elsewhere: ErrName.
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
func (e *Exchange) peerConnected(name string) *Heard {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.senders[name]; s != nil {
		s.wake()
	}
	h := &Heard{Name: name, Connected: true, Refused: map[string]uint64{}}
	e.heard[name] = h
	return h
}

// peerDisconnected notes that a peer's connection has ended. The state of one that is no member is forgotten with it,
// for it can have another name each time.
func (e *Exchange) peerDisconnected(h *Heard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h.Connected = false
	if e.senders[h.Name] == nil && e.heard[h.Name] == h {
		delete(e.heard, h.Name)
	}
}

func (r *receiver) note(do func(*Heard)) {
	r.exchange.mu.Lock()
	defer r.exchange.mu.Unlock()
	do(r.heard)
}

// next takes one message.
func (r *receiver) next() error {
	k, body, err := readMessage(r.reader)
	if err != nil {
		return err
	}
	switch k {
	case kindFlows4, kindFlows6:
		if r.flows, err = parseFlows(r.flows, body, k == kindFlows4); err != nil {
			return err
		}
		if len(r.flows) >= takeAtOnce || r.reader.Buffered() < headerBytes {
			return r.take()
		}
		return nil
	case kindBase:
		if err := r.take(); err != nil {
			return err
		}
		return r.takeBase(body)
	case kindWhole:
		if err := r.take(); err != nil {
			return err
		}
		r.note(func(h *Heard) { h.Whole = true })
		r.exchange.progressed()
		return nil
	}
	return fmt.Errorf("%w: of kind %d, which does not belong here", ErrDamaged, k)
}

// take hands flows to the data plane, and says so.
func (r *receiver) take() error {
	if len(r.flows) == 0 {
		return nil
	}
	done, err := r.exchange.options.DataPlane.TakeFlows(r.flows)
	if err != nil {
		return err
	}
	r.looked += uint64(len(r.flows))
	r.flows = r.flows[:0]
	r.note(func(h *Heard) {
		h.Taken += uint64(done.Taken)
		h.Followed += uint64(done.Followed)
		for reason, n := range done.Refused {
			h.Refused[reason] += uint64(n)
		}
		r.missed = r.missed || done.Missed > 0
	})
	if err := r.conn.SetWriteDeadline(time.Now().Add(r.exchange.options.stalled)); err != nil {
		return err
	}
	_, err = r.conn.Write(message(nil, kindTaken, binary.BigEndian.AppendUint64(nil, r.looked)))
	return err
}

func (r *receiver) takeBase(body []byte) error {
	var base lb.Base
	if err := json.Unmarshal(body, &base); err != nil {
		return fmt.Errorf("%w: a base: %v", ErrDamaged, err)
	}
	err := r.exchange.options.DataPlane.TakeBase(base)
	r.note(func(h *Heard) {
		if err != nil {
			h.RefusedBases++
		} else {
			h.Bases++
		}
	})
	if err != nil {
		r.exchange.options.Log.Debug("a member's base is not taken", "member", r.heard.Name, "error", err)
	}
	return nil
}

// Status returns the state of each peer, by name: told of the sending direction, heard of the receiving one.
func (e *Exchange) Status() (told []Told, heard []Heard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.senders {
		told = append(told, s.status())
	}
	for _, h := range e.heard {
		one := *h
		one.Refused = map[string]uint64{}
		for reason, n := range h.Refused {
			one.Refused[reason] = n
		}
		heard = append(heard, one)
	}
	slices.SortFunc(told, func(a, b Told) int { return cmp.Compare(a.Peer.Name, b.Peer.Name) })
	slices.SortFunc(heard, func(a, b Heard) int { return cmp.Compare(a.Name, b.Name) })
	return told, heard
}
