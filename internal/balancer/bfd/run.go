// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// niceValue is the thread's nice value, where the process may have it. A priority of real time made no
	// difference that could be measured.
	niceValue = -15
	// maxWait is how long the thread waits at most.
	maxWait = time.Second
	// adminDownRepeats is how often a neighbour is sent AdminDown, because a packet may be lost.
	adminDownRepeats = 3
	// maxBatch bounds the packets read at once: more than the kernel keeps for a socket.
	maxBatch = 1 << 14
)

// run is the thread.
func (e *Engine) run() {
	// A thread of its own: its priority is, and it waits in the kernel instead of in the runtime's poller.
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), niceValue)
	defer close(e.ended)
	for {
		e.mu.Lock()
		if e.stopping {
			e.closeSockets()
			e.mu.Unlock()
			return
		}
		wait := e.untilDue(time.Now())
		fds := []unix.PollFd{{Fd: int32(e.wake), Events: unix.POLLIN},
			{Fd: int32(e.sockets[0].fd), Events: unix.POLLIN}, {Fd: int32(e.sockets[1].fd), Events: unix.POLLIN}}
		e.mu.Unlock()
		timeout := unix.NsecToTimespec(int64(wait))
		_, _ = unix.Ppoll(fds, &timeout, nil)
		var number [8]byte
		_, _ = unix.Read(e.wake, number[:])
		e.mu.Lock()
		e.runDue(&e.sockets[0], &e.sockets[1])
		e.mu.Unlock()
	}
}

// closeSockets closes all that is open.
func (e *Engine) closeSockets() {
	for i := range e.sockets {
		e.sockets[i].close()
	}
	unix.Close(e.wake)
}

// untilDue returns the time until a session is next due, unless a packet comes.
func (e *Engine) untilDue(now time.Time) time.Duration {
	wait := maxWait
	for _, r := range e.sessions {
		if due := r.session.Due(now); !due.IsZero() {
			wait = min(wait, max(due.Sub(now), 0))
		}
	}
	return wait
}

// runDue takes the steps that are due. Only packets that the kernel had received when runDue began decide whether a
// neighbour is lost, so a late wake-up of this process loses none: they are read first, with the kernel's times.
func (e *Engine) runDue(sources ...packetSource) {
	began := time.Now()
	read := true
	for _, s := range sources {
		read = e.drain(s, began) && read
	}
	for _, r := range e.sessions {
		if read {
			e.recordTransition(r, r.session.CheckDetection(began), began)
		}
		r.send(time.Now())
	}
	if began.Sub(e.dropsReadAt) > time.Second {
		e.dropsReadAt, e.dropped = began, uint64(e.sockets[0].drops())+uint64(e.sockets[1].drops())
	}
}

// drain reads the packets received until a time; false if there are more.
func (e *Engine) drain(from packetSource, until time.Time) bool {
	for range maxBatch {
		got, there := from.read()
		if !there {
			from.markEmpty(time.Now())
			return true
		}
		e.handlePacket(got)
		if !got.at.Before(until) {
			return true
		}
	}
	return false
}

// handlePacket gives a datagram to its session.
func (e *Engine) handlePacket(got datagram) {
	r := e.sessions[got.from]
	if r == nil {
		return
	}
	if got.ttl != maxTTL {
		r.status.Refused++
		return
	}
	p, err := Parse(got.payload)
	var change Change
	if err == nil {
		change, err = r.session.HandlePacket(p, got.at)
	}
	if err != nil {
		r.status.Refused++
		r.status.Problem = "a packet of it is not taken: it " + err.Error()
		return
	}
	r.status.Received++
	r.status.Problem, r.sender.problem = "", ""
	e.recordTransition(r, change, got.at)
}

// recordTransition updates the counters of a session, and queues the change for notify.
func (e *Engine) recordTransition(r *peerSession, c Change, at time.Time) {
	if c.From == c.To {
		return
	}
	r.status.Since = at
	if c.To == Up {
		r.status.Ups++
	}
	if c.Failed {
		r.status.Failures++
	}
	e.pending = append(e.pending, notification{r.peer.Address, c, r.currentStatus()})
	select {
	case e.wakeNotify <- struct{}{}:
	default:
	}
}

// send sends the packets that are due.
func (r *peerSession) send(now time.Time) {
	due := r.session.nextSend
	regular := r.session.txInterval()
	packets := r.session.PacketsDue(now)
	for _, p := range packets {
		r.sender.send(r.peer, p)
		r.status.Sent++
	}
	// The jitter leaves a quarter of the interval: a packet that is later than that comes after the interval that the
	// neighbour was promised.
	if len(packets) > 0 && regular > 0 && now.Sub(due) > regular/4 {
		r.status.Late++
	}
}

// sendAdminDown tells the neighbour that the session is taken down, and closes its socket.
func (r *peerSession) sendAdminDown(now time.Time) {
	r.session.TakeDown(now)
	for range adminDownRepeats {
		r.sender.send(r.peer, r.session.nextPacket())
	}
	r.sender.close()
}

// packetSource is a source of datagrams, each with the time at which the kernel received it.
type packetSource interface {
	// read returns the next datagram; false if there is none.
	read() (datagram, bool)
	// markEmpty records that there was no datagram at a time.
	markEmpty(time.Time)
}

// datagram is a received datagram.
type datagram struct {
	payload []byte
	// from has the zone of a link-local address, by the interface's name.
	from netip.Addr
	ttl  int
	// at is when the kernel received it, by the monotonic clock.
	at time.Time
}
