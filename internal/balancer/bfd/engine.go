// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Peer is a neighbour to hold a session with.
type Peer struct {
	// Address has the zone of a link-local one.
	Address netip.Addr
	// Local is the source address of packets, invalid: the one by the routing table; Interface is the one that they
	// leave by, if it is not empty.
	Local     netip.Addr
	Interface string
	Timing    Timing
}

// Status is the state of a session, with its counters.
type Status struct {
	State State
	// Since is the time of the last change of state.
	Since time.Time
	// Diagnostic is the reason for which the session last went down, and RemoteDiagnostic the neighbour's reason.
	Diagnostic, RemoteDiagnostic Diagnostic
	RemoteState                  State
	// Interval is the time between two packets sent, and Detection the detection time; 0 before the neighbour's first
	// packet.
	Interval, Detection time.Duration
	// Ups and Failures count how often the session came Up and the neighbour was lost.
	Ups, Failures uint64
	// Sent and Received count packets, Refused invalid ones from the neighbour's address, and Late those that this
	// process sent later than the neighbour could expect them.
	Sent, Received, Refused, Late uint64
	// Problem is the reason why the session is not Up; empty: no packet of the neighbour has come.
	Problem string
}

// Engine runs the sessions with neighbours on a thread of its own.
type Engine struct {
	changed func(netip.Addr, Change, Status)

	// mu guards the fields below; the thread has it whenever it does not wait.
	mu       sync.Mutex
	sessions map[netip.Addr]*peerSession
	sockets  [2]receiver // IPv4 and IPv6
	wake     int
	started  bool
	stopping bool
	ended    chan struct{}
	// pending are the changes still to be passed to changed; wakeNotify has a value when there are some.
	pending    []notification
	wakeNotify chan struct{}
	// dropped counts the packets that the kernel has dropped: packets of none of the peers, and those that were
	// forwarded.
	dropped     uint64
	dropsReadAt time.Time
}

// notification is a change of a session, and its status.
type notification struct {
	peer   netip.Addr
	change Change
	status Status
}

// peerSession is a session with its neighbour's socket.
type peerSession struct {
	peer    Peer
	session *Session
	sender  sender
	status  Status
}

// silenceTimeout is the time without a packet of the neighbour after which Problem says so.
const silenceTimeout = 5 * time.Second

// NewEngine returns an engine without sessions, which opens no sockets and starts no thread before SetPeers names a
// neighbour. It calls changed, from a goroutine of its own, after each change of a session's state.
func NewEngine(changed func(netip.Addr, Change, Status)) *Engine {
	return &Engine{changed: changed, sessions: map[netip.Addr]*peerSession{}, wake: -1,
		sockets: [2]receiver{{fd: -1}, {fd: -1, six: true}},
		ended:   make(chan struct{}), wakeNotify: make(chan struct{}, 1)}
}

// SetPeers makes these neighbours the only ones with sessions. Sessions with unchanged neighbours go on; removed ones
// are taken down with AdminDown. On an error, the sessions with all other neighbours exist nevertheless.
func (e *Engine) SetPeers(peers []Peer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(peers) == 0 && !e.started || e.stopping {
		return nil
	}
	now := time.Now()
	wanted := make(map[netip.Addr]Peer, len(peers))
	for _, p := range peers {
		wanted[p.Address] = p
	}
	for address, r := range e.sessions {
		p, exists := wanted[address]
		if exists && p.Local == r.peer.Local && p.Interface == r.peer.Interface {
			if p.Timing != r.peer.Timing {
				r.session.SetTiming(p.Timing, now)
				r.peer.Timing = p.Timing
			}
			continue
		}
		r.sendAdminDown(now)
		delete(e.sessions, address)
	}
	for _, p := range peers {
		if e.sessions[p.Address] == nil {
			e.sessions[p.Address] = &peerSession{peer: p, session: New(p.Timing, e.newDiscriminator(), rand.Float64,
				now),
				sender: sender{fd: -1}, status: Status{State: Down, Since: now}}
		}
	}
	return errors.Join(e.listen(peers), e.start())
}

// newDiscriminator draws a discriminator that no session has.
func (e *Engine) newDiscriminator() uint32 {
	for {
		n := rand.Uint32()
		if n != 0 && !slices.ContainsFunc(slices.Collect(e.allSessions()), func(r *peerSession) bool {
			return r.session.local == n
		}) {
			return n
		}
	}
}

func (e *Engine) allSessions() func(func(*peerSession) bool) {
	return func(yield func(*peerSession) bool) {
		for _, r := range e.sessions {
			if !yield(r) {
				return
			}
		}
	}
}

// listen has the sockets accept packets of these neighbours only.
func (e *Engine) listen(peers []Peer) error {
	var errs []error
	for i := range e.sockets {
		var of []netip.Addr
		for _, p := range peers {
			if p.Address.Is6() == e.sockets[i].six {
				of = append(of, p.Address.WithZone(""))
			}
		}
		err := e.sockets[i].listen(of)
		for _, r := range e.sessions {
			if r.peer.Address.Is6() == e.sockets[i].six && err != nil {
				r.status.Problem = err.Error()
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// start starts the thread, or wakes it for a change.
func (e *Engine) start() error {
	if e.started {
		e.wakeThread()
		return nil
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("start BFD: %w", err)
	}
	e.wake, e.started = wake, true
	go e.run()
	go e.notify()
	return nil
}

func (e *Engine) wakeThread() { _, _ = unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// Stop takes all sessions down with AdminDown, which neighbours do not take for a failure.
func (e *Engine) Stop() {
	e.mu.Lock()
	started := e.started && !e.stopping
	e.stopping = true
	now := time.Now()
	for address, r := range e.sessions {
		r.sendAdminDown(now)
		delete(e.sessions, address)
	}
	if started {
		e.wakeThread()
	}
	e.mu.Unlock()
	if started {
		<-e.ended
	}
}

// Status returns the status of the session with a neighbour; false if there is none.
func (e *Engine) Status(peer netip.Addr) (Status, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.sessions[peer]
	if r == nil {
		return Status{}, false
	}
	status := r.currentStatus()
	if status.State != Up && status.Problem == "" && r.session.lastReceived.IsZero() &&
		time.Since(status.Since) > silenceTimeout {
		status.Problem = "no packet of it has come: does it have BFD with this host?"
		if e.dropped > 0 {
			status.Problem = "no packet of it has come; packets to the port of BFD were dropped, because they were from no peer's address, or a router had forwarded them"
		}
	}
	return status, true
}

// Dropped counts packets to the port of BFD that the kernel has dropped: from none of the peers, with a TTL below 255
// (RFC 5881 section 5), or more than could be read.
func (e *Engine) Dropped() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dropped
}

// notify calls changed with the changes.
func (e *Engine) notify() {
	for {
		select {
		case <-e.ended:
			return
		case <-e.wakeNotify:
		}
		e.mu.Lock()
		all := e.pending
		e.pending = nil
		e.mu.Unlock()
		for _, n := range all {
			e.changed(n.peer, n.change, n.status)
		}
	}
}

// currentStatus returns the status with the session's state.
func (r *peerSession) currentStatus() Status {
	s, now := r.session, r.status
	now.State, now.RemoteState, now.Diagnostic, now.RemoteDiagnostic = s.state, s.remoteState, s.diag, s.remoteDiag
	now.Interval, now.Detection = s.txInterval(), s.DetectionTime()
	if now.State != Up {
		now.Problem = cmp.Or(now.Problem, r.sender.problem)
	} else {
		now.Problem = ""
	}
	return now
}
