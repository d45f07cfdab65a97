// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Load is the load of one client.
type Load struct {
	// Target is the address, and the port of both TCP and UDP, that requests go to.
	Target netip.AddrPort
	// Connections is the number of connections that are held open. Each sends a request every Pace, and a connection
	// that does not answer within Timeout is broken.
	Connections   int
	Pace, Timeout time.Duration
	// NewPerSecond is the rate of other connections, which are opened, used for one request, and closed.
	NewPerSecond float64
	// UDPFlows is the number of UDP sockets that are kept. Each sends a query every UDPPace. UDPPerSecond is the rate
	// of queries from sockets of their own. A query without an answer within UDPTimeout is not sent again.
	UDPFlows            int
	UDPPerSecond        float64
	UDPPace, UDPTimeout time.Duration
	// ReusedPorts are connections from reused ports; there are none if it has no ports.
	ReusedPorts ReusedPorts
}

// loadClient runs the connections and queries of one client.
type loadClient struct {
	load    Load
	counter *counter
	ctx     context.Context
	group   sync.WaitGroup
	dialer  net.Dialer
	// mark counts the calls of settle.
	mark       atomic.Uint64
	held       []connSlot
	openReused openReused
	// inFlight counts, for each mark, the requests that began at that mark and are not done yet.
	mu       sync.Mutex
	inFlight map[uint64]int
}

// connSlot is a slot for a connection that is held open.
type connSlot struct {
	// since is the mark at which the last correctly answered request began, plus 1; 0 before the first.
	since atomic.Uint64
}

// newLoadClient starts a client, which ends with ctx.
func newLoadClient(ctx context.Context, load Load) *loadClient {
	h := &loadClient{load: load, counter: newCounter(), ctx: ctx, held: make([]connSlot, load.Connections),
		inFlight: map[uint64]int{}}
	h.dialer = net.Dialer{Timeout: load.Timeout, KeepAlive: -1}
	return h
}

// openers is the maximum number of connections that a client opens concurrently when it begins.
const openers = 64

// open opens the connections, and returns when each has been answered once. The error is that of a connection that
// could not be opened.
func (h *loadClient) open(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(openers)
	for i := range h.held {
		group.Go(func() error {
			l, err := h.dial(ctx, uint64(i)+1)
			if err != nil {
				return err
			}
			h.keep(&h.held[i], l)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	h.background()
	return nil
}

// background starts the traffic besides the held connections.
func (h *loadClient) background() {
	h.every(h.load.NewPerSecond, h.openOne)
	h.every(h.load.UDPPerSecond, h.queryOne)
	for i := range h.load.UDPFlows {
		h.group.Go(func() { h.askUDP(uint64(i) + 1) })
	}
	for i := range h.load.ReusedPorts.Ports {
		h.group.Go(func() { h.reusePort(h.load.ReusedPorts.First + i) })
	}
}

// every starts f at a rate per second.
func (h *loadClient) every(perSecond float64, f func()) {
	if perSecond <= 0 {
		return
	}
	h.group.Go(func() {
		tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
		defer tick.Stop()
		for {
			select {
			case <-h.ctx.Done():
				return
			case <-tick.C:
				h.group.Go(f)
			}
		}
	})
}

// clientConn is a connection that has been answered once.
type clientConn struct {
	conn   net.Conn
	flow   uint64
	number uint64
	peer   peer
	opened time.Time
}

// broken describes the connection, which broke with err.
func (l *clientConn) broken(err error) Break {
	// It is a local address, so parsing cannot fail.
	local, _ := netip.ParseAddrPort(l.conn.LocalAddr().String())
	now := time.Now()
	return Break{Local: local, Server: l.peer.Server, Cause: causeOf(err), Age: now.Sub(l.opened), At: now}
}

// dial opens a connection and sends the first request over it.
func (h *loadClient) dial(ctx context.Context, flow uint64) (*clientConn, error) {
	conn, err := h.dialer.DialContext(ctx, "tcp4", h.load.Target.String())
	if err != nil {
		return nil, err
	}
	l := &clientConn{conn: conn, flow: flow, opened: time.Now()}
	if l.peer, err = l.ask(h.load.Timeout); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// ask sends a request and reads its answer.
func (l *clientConn) ask(timeout time.Duration) (peer, error) {
	l.number++
	r := request{l.flow, l.number}
	if err := l.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return peer{}, err
	}
	if _, err := l.conn.Write(r.bytes()); err != nil {
		return peer{}, err
	}
	answer := make([]byte, answerBytes)
	if _, err := io.ReadFull(l.conn, answer); err != nil {
		return peer{}, err
	}
	return r.read(answer)
}

// keep sends requests over a connection until it breaks, opens another in its place, and so on. The first request is
// sent at a random time, to spread the requests of all connections.
func (h *loadClient) keep(slot *connSlot, l *clientConn) {
	h.counter.addHeld(l.peer.Server)
	slot.since.Store(h.mark.Load() + 1)
	h.group.Go(func() {
		wait := time.Duration(rand.Int64N(int64(h.load.Pace)))
		for h.ctx.Err() == nil {
			if l == nil {
				if l = h.reopen(slot); l == nil {
					return
				}
			}
			if !h.sleep(wait) {
				l.conn.Close()
				return
			}
			wait = h.load.Pace
			if err := h.askOver(slot, l); err != nil {
				l.conn.Close()
				if h.ctx.Err() == nil {
					h.counter.addBroken(l.broken(err))
				}
				l = nil
			}
		}
	})
}

// sleep waits, and returns false if the client ends before d has passed.
func (h *loadClient) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// askOver sends a request over a held connection, and returns an error if the connection broke.
func (h *loadClient) askOver(slot *connSlot, l *clientConn) error {
	mark, began := h.mark.Load(), time.Now()
	from, err := l.ask(h.load.Timeout)
	if err != nil {
		return err
	}
	if from != l.peer {
		return errMoved
	}
	h.counter.addAnswered(time.Since(began))
	slot.since.Store(mark + 1)
	return nil
}

// reopenAfter is how long a client waits before it tries to open a connection again.
const reopenAfter = 200 * time.Millisecond

// reopen opens a connection to replace a broken one; nil if the client ends.
func (h *loadClient) reopen(slot *connSlot) *clientConn {
	for h.ctx.Err() == nil {
		mark, began := h.mark.Load(), time.Now()
		l, err := h.dial(h.ctx, rand.Uint64())
		if err == nil {
			h.countOpened(l.peer.Server, mark)
			h.counter.addHeld(l.peer.Server)
			slot.since.Store(mark + 1)
			return l
		}
		h.countFailed(began, err)
		h.sleep(reopenAfter)
	}
	return nil
}

// openOne opens a connection, sends one request over it and closes it.
func (h *loadClient) openOne() {
	h.trackRequest(func(mark uint64) {
		began := time.Now()
		l, err := h.dial(h.ctx, rand.Uint64())
		if err != nil {
			h.countFailed(began, err)
			return
		}
		l.conn.Close()
		h.countOpened(l.peer.Server, mark)
	})
}

// trackRequest runs f. A settle that begins later waits for f.
func (h *loadClient) trackRequest(f func(mark uint64)) {
	h.mu.Lock()
	mark := h.mark.Load()
	h.inFlight[mark]++
	h.mu.Unlock()
	f(mark)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inFlight[mark]--; h.inFlight[mark] == 0 {
		delete(h.inFlight, mark)
	}
}

// hasRequestBefore reports whether a request that began before a mark is not done yet.
func (h *loadClient) hasRequestBefore(mark uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := range h.inFlight {
		if at < mark {
			return true
		}
	}
	return false
}

// countOpened counts a new connection that began at a mark.
func (h *loadClient) countOpened(server string, mark uint64) {
	h.counter.change(func() {
		h.counter.counts.Opened++
		if mark == h.mark.Load() {
			h.counter.counts.Late[server]++
		}
	})
}

// countFailed counts a failed new connection that began at a time.
func (h *loadClient) countFailed(began time.Time, err error) {
	if h.ctx.Err() == nil {
		h.counter.change(func() {
			h.counter.counts.Failed[causeOf(err)]++
			h.counter.counts.LostNew.add(began)
		})
	}
}

// settle sets a mark and waits until every held connection has been answered since, or has broken and was reopened, and
// until all other requests that had begun are done. So all effects of the time before the mark are counted. Its error
// is that of ctx: then some connections could be neither held nor reopened.
func (h *loadClient) settle(ctx context.Context) error {
	var mark uint64
	h.counter.change(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		mark = h.mark.Add(1)
		clear(h.counter.counts.Late)
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for next := 0; next < len(h.held) || h.hasRequestBefore(mark); {
		if next < len(h.held) && h.held[next].since.Load() > mark {
			next++
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
