// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The clients in a world of several balancers, and the outcomes that their packets must have.

// worldConn is a client's port, and the connection that it has.
type worldConn struct {
	service int
	port    uint16
	open    bool
	next    time.Duration
	backend int
	source  netip.AddrPort
	begun   time.Duration
	// by is the member where it was proven, and lastAt the one where its packets came last.
	by  *worldMember
	seq uint32
	// story is its history, for the message of a failure.
	story  []string
	lastAt *worldMember
	// untold: it is a matter of chance whether others knew of it at its last move.
	untold bool
}

// route says which balancer a port's packets come to, nil for none.
func (w *world) route(c *worldConn) *worldMember {
	var to []*worldMember
	for _, m := range w.members {
		if m.routed {
			to = append(to, m)
		}
	}
	if len(to) == 0 {
		return nil
	}
	return to[int(c.port)*7919%104729%len(to)]
}

// sendPacket sends a packet of a port, and says where it went: the backend, or -1, and its source.
func (w *world) sendPacket(c *worldConn, flags string) (m *worldMember, backend int, source netip.AddrPort) {
	m = w.route(c)
	if m == nil || !m.attached || !m.reached {
		return nil, -1, source
	}
	w.packets++
	seq := c.seq
	if !strings.Contains(flags, "S") {
		seq++
	}
	s := &w.services[c.service]
	verdict, out,
		err := m.Program().Test(packetSpec{from: client4, at: vip4, sport: c.port, dport: s.Port, flags: flags,
		seq: seq}.build(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	if verdict != 3 && verdict != 4 {
		return m, -1, source
	}
	backend = int(out[5]) - 1
	if s.Mode == lb.FullNAT {
		source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(out[26:30])), uint16(out[34])<<8|uint16(out[35]))
	}
	return m, backend, source
}

// converged reports whether all members that are routed know the backends' true state.
func (w *world) converged() bool {
	for _, m := range w.members {
		if m.routed && m.view != w.truth {
			return false
		}
	}
	return true
}

func (c *worldConn) note(w *world, format string, args ...any) {
	c.story = append(c.story, fmt.Sprintf("%.1f %s", w.now.Seconds(), fmt.Sprintf(format, args...)))
	if len(c.story) > 24 {
		c.story = c.story[1:]
	}
}

// serves reports whether a backend runs.
func (w *world) serves(b int) bool { return w.truth[b] == serverUp || w.truth[b] == serverDrained }

func (w *world) act(c *worldConn) {
	if c.open && !w.serves(c.backend) {
		c.note(w, "its backend has gone")
		c.open, c.next = false, w.now+4*time.Second+w.upTo(3*time.Second)
		return
	}
	if w.now < c.next {
		return
	}
	switch {
	case !c.open:
		w.begin(c)
	case w.rand.IntN(20) == 0:
		w.end(c)
	default:
		if w.data(c); !c.open {
			return
		}
		c.next = w.now + worldTick + w.upTo(time.Second)
		if w.rand.IntN(8) == 0 {
			c.next += w.upTo(20 * time.Second)
		}
	}
}

func (w *world) begin(c *worldConn) {
	c.seq = uint32(w.now / (4 * time.Microsecond))
	m, backend, source := w.sendPacket(c, "S")
	c.next = w.now + time.Second
	if backend < 0 || !w.serves(backend) {
		return
	}
	c.open, c.backend, c.source, c.begun, c.by, c.untold = true, backend, source, w.now, nil, false
	c.story = c.story[max(len(c.story)-8, 0):]
	c.lastAt = m
	c.note(w, "SYN at %d to %d from %v", m.number, backend, source)
	c.next = w.now + worldTick
	if w.rand.IntN(10) > 0 {
		w.data(c)
	}
}

// data sends a packet in the middle.
func (w *world) data(c *worldConn) {
	m, backend, source := w.sendPacket(c, "A")
	if m == nil {
		return
	}
	if c.by == nil && backend == c.backend {
		c.by, c.begun, c.untold = m, w.now, !m.alive || m != c.lastAt
		c.note(w, "proven at %d", m.number)
	}
	if m != c.lastAt {
		// An entry of the previous connection may still lead it there.
		c.untold = c.untold || c.by != nil && c.by != m && w.now-c.begun < spreadBound
		c.lastAt = m
		c.note(w, "packets come to %d", m.number)
	}
	if backend == c.backend && source == c.source {
		return
	}
	w.checkRerouted(c, m, backend, source)
}

// checkRerouted judges a packet that went elsewhere.
func (w *world) checkRerouted(c *worldConn, m *worldMember, backend int, source netip.AddrPort) {
	s := &w.services[c.service]
	why := ""
	switch {
	case c.by == nil || w.now-c.begun < spreadBound:
		why = "young"
	case c.untold:
		why = "untold"
	case !w.converged():
		why = "verdicts differ"
		if backend < 0 {
			return // it is sent again
		}
	}
	c.open, c.next = false, w.now+w.upTo(3*time.Second)
	c.note(w, "at %d to %d from %v", m.number, backend, source)
	if why != "" {
		// Balancers' entries of it have its port.
		delete(w.byPort, c.port)
		c.port += 10_000
		w.byPort[c.port] = c
		w.excused++
		return
	}
	w.broken[s.Name]++
	if w.broken[s.Name] <= 2 {
		w.t.Errorf("%.1f: a connection of %s from port %d, %.1f s old, was with %d by %v, and at %d goes to %d by %v\n  %s\n%s", w.now.Seconds(), s.Name, c.port, (w.now - c.begun).Seconds(),
			c.backend, c.source, m.number, backend, source, strings.Join(c.story, "\n  "),
			strings.Join(w.log[max(len(w.log)-14, 0):], "\n"))
	}
}

// end ends a connection as one or the other does.
func (w *world) end(c *worldConn) {
	how := w.rand.IntN(4)
	switch how {
	case 0: // FIN of both, the client first
		w.sendPacket(c, "FA")
		w.reply(c, "FA")
	case 1: // the backend first
		w.reply(c, "FA")
		w.sendPacket(c, "FA")
	case 2:
		w.sendPacket(c, "R")
	case 3: // neither end sends anything, or it does not pass here
	}
	c.note(w, "end %d", how)
	// In full NAT, the next connection can be told from the one before only once the end of that was sent.
	c.open, c.next = false, w.now+leastPause+w.upTo(4*time.Second)
	if how == 3 {
		c.next += 4 * time.Second
	}
}

// reply sends the backend's packet to where it answers in full NAT.
func (w *world) reply(c *worldConn, flags string) {
	if !c.source.IsValid() {
		return
	}
	at := w.members[int(c.source.Addr().As4()[3])-77]
	if !at.routed {
		at = w.route(c)
	}
	if at == nil || !at.attached || !at.reached {
		return
	}
	s := &w.services[c.service]
	b := s.Backends[c.backend]
	if _, _, err := at.Program().Test(packetSpec{from: b.Address, sport: b.Port, at: c.source.Addr(),
		dport: c.source.Port(), flags: flags}.build(w.t)); err != nil {
		w.t.Fatal(err)
	}
}
