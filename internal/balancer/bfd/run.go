// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// urgency is the thread's nice value, where the process may have it. A priority of real time made no difference
	// that could be measured.
	urgency = -15
	// idle is how long the thread waits at most.
	idle = time.Second
	// farewells is how often a neighbour is told that the session is taken down, for a packet may be lost.
	farewells = 3
	// flood bounds the packets read at once: more than the kernel keeps for a socket.
	flood = 1 << 14
)

// run is the thread.
func (e *Engine) run() {
	// A thread of its own: its priority is, and it waits in the kernel instead of in the runtime's poller.
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), urgency)
	defer close(e.ended)
	for {
		e.mu.Lock()
		if e.stopping {
			e.shut()
			e.mu.Unlock()
			return
		}
		wait := e.until(time.Now())
		fds := []unix.PollFd{{Fd: int32(e.wake), Events: unix.POLLIN},
			{Fd: int32(e.sockets[0].fd), Events: unix.POLLIN}, {Fd: int32(e.sockets[1].fd), Events: unix.POLLIN}}
		e.mu.Unlock()
		timeout := unix.NsecToTimespec(int64(wait))
		_, _ = unix.Ppoll(fds, &timeout, nil)
		var number [8]byte
		_, _ = unix.Read(e.wake, number[:])
		e.mu.Lock()
		e.turn(&e.sockets[0], &e.sockets[1])
		e.mu.Unlock()
	}
}

// shut closes all that is open.
func (e *Engine) shut() {
	for i := range e.sockets {
		e.sockets[i].close()
	}
	unix.Close(e.wake)
}

// until is how long nothing is to be done, unless a packet comes.
func (e *Engine) until(now time.Time) time.Duration {
	wait := idle
	for _, r := range e.sessions {
		if due := r.session.Due(now); !due.IsZero() {
			wait = min(wait, max(due.Sub(now), 0))
		}
	}
	return wait
}

// turn does all that is due. A neighbour is lost by the packets that had come when the turn began, and not by when this
// process came to look: all that the kernel has received until then is taken up first, with the time of that.
func (e *Engine) turn(sources ...source) {
	began := time.Now()
	read := true
	for _, s := range sources {
		read = e.drain(s, began) && read
	}
	for _, r := range e.sessions {
		if read {
			e.note(r, r.session.Expire(began), began)
		}
		r.send(time.Now())
	}
	if began.Sub(e.looked) > time.Second {
		e.looked, e.dropped = began, uint64(e.sockets[0].drops())+uint64(e.sockets[1].drops())
	}
}

// drain takes up the packets that have come until a time; false where there are more.
func (e *Engine) drain(from source, until time.Time) bool {
	for range flood {
		got, there := from.read()
		if !there {
			from.empty(time.Now())
			return true
		}
		e.take(got)
		if !got.at.Before(until) {
			return true
		}
	}
	return false
}

// take gives a datagram to its session.
func (e *Engine) take(got datagram) {
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
		change, err = r.session.Receive(p, got.at)
	}
	if err != nil {
		r.status.Refused++
		r.status.Problem = "a packet of it is not taken: it " + err.Error()
		return
	}
	r.status.Received++
	r.status.Problem, r.sender.problem = "", ""
	e.note(r, change, got.at)
}

// note queues a change for notify.
func (e *Engine) note(r *running, c Change, at time.Time) {
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
	e.news = append(e.news, news{r.peer.Address, c, r.seen()})
	select {
	case e.told <- struct{}{}:
	default:
	}
}

// send sends the packets that are due.
func (r *running) send(now time.Time) {
	due := r.session.next
	regular := r.session.interval()
	packets := r.session.Send(now)
	for _, p := range packets {
		r.sender.send(r.peer, p)
		r.status.Sent++
	}
	// The jitter leaves a quarter of the interval: a packet that is later than that comes later than the neighbour was
	// told.
	if len(packets) > 0 && regular > 0 && now.Sub(due) > regular/4 {
		r.status.Late++
	}
}

// leave says to the neighbour that the session is taken down, and closes its socket.
func (r *running) leave(now time.Time) {
	r.session.Shut(now)
	for range farewells {
		r.sender.send(r.peer, r.session.packet())
	}
	r.sender.close()
}

// source is where datagrams come from, each with when the kernel received it.
type source interface {
	// read returns the next one; false where there is none.
	read() (datagram, bool)
	// empty says that there was none at a time.
	empty(time.Time)
}

// datagram is a received datagram.
type datagram struct {
	payload []byte
	// from has the zone of a link-local address, by the interface's name.
	from netip.Addr
	ttl  int
	// at is when the kernel received it, of the clock that is never set.
	at time.Time
}
