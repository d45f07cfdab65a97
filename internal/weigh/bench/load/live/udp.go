// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math/rand/v2"
	"net"
	"time"
)

// askUDP sends queries over one UDP socket repeatedly, and counts answers from another server than the previous one.
func (h *loadClient) askUDP(flow uint64) {
	conn, err := h.dialer.DialContext(h.ctx, "udp4", h.load.Target.String())
	if err != nil {
		h.countQuery(time.Now(), false)
		return
	}
	defer conn.Close()
	before := ""
	wait := time.Duration(rand.Int64N(int64(h.load.UDPPace)))
	for number := uint64(1); h.sleep(wait); number++ {
		wait = h.load.UDPPace
		var from peer
		var ok bool
		h.trackRequest(func(uint64) { from, ok = h.query(conn, request{flow, number}) })
		if !ok {
			continue
		}
		if before != "" && from.Server != before {
			h.counter.change(func() { h.counter.counts.UDPMoved[before]++ })
		}
		before = from.Server
	}
}

// queryOne sends a query from a new socket, as resolvers do.
func (h *loadClient) queryOne() {
	h.trackRequest(func(uint64) {
		conn, err := h.dialer.DialContext(h.ctx, "udp4", h.load.Target.String())
		if err != nil {
			h.countQuery(time.Now(), false)
			return
		}
		defer conn.Close()
		h.query(conn, request{rand.Uint64(), 1})
	})
}

// countQuery counts a query that was sent at a time, answered or not.
func (h *loadClient) countQuery(at time.Time, answered bool) {
	if h.ctx.Err() != nil {
		return
	}
	h.counter.change(func() {
		h.counter.counts.Queries++
		if !answered {
			h.counter.counts.Unanswered++
			h.counter.counts.LostQueries.add(at)
		}
	})
}

// query sends a query, counts it, and returns the server that answered; ok is false if none did in time.
func (h *loadClient) query(conn net.Conn, r request) (from peer, ok bool) {
	began := time.Now()
	until := began.Add(h.load.UDPTimeout)
	_, err := conn.Write(r.bytes())
	if err == nil {
		err = conn.SetReadDeadline(until)
	}
	answer := make([]byte, answerBytes+1)
	for err == nil {
		var n int
		if n, err = conn.Read(answer); err != nil {
			break
		}
		// An answer to an earlier query may arrive now, too late for that query.
		if from, err := r.read(answer[:n]); err == nil {
			h.countQuery(began, true)
			return from, true
		}
	}
	h.countQuery(began, false)
	return peer{}, false
}
