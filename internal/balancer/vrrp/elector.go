// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// Desired configures how a balancer takes part in an election. With the zero value it takes no part, and holds the
// VIPs.
type Desired struct {
	Settings
	// Interface is the one on which advertisements are sent.
	Interface string
	// VIPs are one group, of both families.
	VIPs []netip.Addr
	// Out is the reason why this balancer takes no part now, and leaves the VIPs to others; empty: it takes part.
	Out string
}

func (w Desired) enabled() bool { return w.VRID != 0 }

// Status is the state of the election.
type Status struct {
	State State
	// Since is when the state began, and Why its cause.
	Since time.Time
	Cause string
	// Priority is the priority that this balancer announces now.
	Priority uint8
	// Peer and the fields below are the address of the last active balancer whose ADVERTISEMENT came, its priority and
	// interval, and the time.
	Peer         netip.Addr
	PeerPriority uint8
	PeerInterval time.Duration
	Heard        time.Time
	// BothActive: the peer and this balancer are active at once.
	BothActive bool
	// Changes counts changes of the state, Sent and Received ADVERTISEMENTS, Rejected invalid packets, Ignored ones of
	// other virtual routers with the same id, and Conflicts how often two balancers were found active.
	Changes, Sent, Received, Rejected, Ignored, Conflicts uint64
	// OtherRouters are other virtual routers with the same id that have advertised lately.
	OtherRouters []OtherRouter
	// Reason is why the last of those was rejected.
	Reason string
	// Problem is the reason why this balancer cannot take part, or why packets that it receives are invalid.
	Problem string
}

// Links watches the interface of the election.
type Links interface {
	// States returns the state of the interface, as the only element.
	States() ([]iface.State, error)
	// Changes is signalled when States may return something else.
	Changes() <-chan struct{}
	// Close ends the watch.
	Close()
}

// packetConn is a socket of one family.
type packetConn interface {
	send(Advert) error
	receive() (received, error)
	receivePending() (received, bool)
	close() error
}

// Options are the parts of an elector.
type Options struct {
	Log *slog.Logger
	// Watch watches an interface.
	Watch func(name string) (Links, error)
	// KeepVIPs: the previous process, which was killed, has left the VIPs on the interface. They stay until the
	// election is decided.
	KeepVIPs bool
	// open opens a socket; nil: a raw one.
	open func(link string, index int, src netip.Addr) (packetConn, error)
}

// retryInterval is the time after a failure until the interface is looked up again.
const retryInterval = time.Second

// Elector takes part in the election of the balancer that holds the VIPs. Its methods may be called from any
// goroutine.
type Elector struct {
	opt            Options
	desiredChanged chan struct{}
	changes        chan struct{}

	mu               sync.Mutex
	desired          Desired
	status           Status
	holds            bool
	holdingUndecided bool
	// announcements counts the repeated announcements of the VIPs to the neighbours.
	announcements uint64

	// Only Run uses the fields below.
	current Desired
	machine Machine
	link    Links
	// linkState was read last; the zero value: nothing was. linkProblem is why a later read has failed.
	linkState   iface.State
	linkProblem string
	// reads has the result of the read in progress, if reading is set: the election does not wait for that. readAgain
	// has another read follow.
	reads              chan linkRead
	reading, readAgain bool
	sockets            map[netip.Addr]packetConn // by the address that they send from
	packets            chan receivedBy
	// keepVIPs: the VIPs were held before the election, and stay until it is decided.
	keepVIPs bool
	// releaseAt is when resigned VIPs are released if no other balancer becomes active before; zero: none are held.
	releaseAt time.Time
	retry     time.Time
	// stallCheck is the time of the check whether this process was stalled, before missing ADVERTISEMENTs count; zero:
	// it was made.
	stallCheck time.Time
	// conflict is the time of the first and last ADVERTISEMENT of another active balancer while this one is active.
	conflict      struct{ first, last time.Time }
	loggedProblem string // the last problem that was logged
	senders       senders
	// rejections are the kinds of rejected packets that were logged, at most maxSenders, with the time.
	rejections map[rejection]time.Time
}

// rejection is a kind of rejected packets.
type rejection struct {
	src    netip.Addr
	reason string
}

// rejectionPause is the time after which rejected packets of a kind are logged again.
const rejectionPause = 10 * time.Minute

// receivedBy is a packet, and the address that its socket sends from.
type receivedBy struct {
	received
	own netip.Addr
}

// linkRead is the result of reading the state of the interface.
type linkRead struct {
	states []iface.State
	err    error
}

// New returns an elector. A balancer that is to take part does not hold the VIPs before Run has decided.
func New(opt Options, first Desired) *Elector {
	if opt.open == nil {
		opt.open = func(link string, index int, src netip.Addr) (packetConn, error) { return open(link, index, src) }
	}
	return &Elector{opt: opt, desired: first, holds: !first.enabled() || opt.KeepVIPs,
		holdingUndecided: first.enabled() && opt.KeepVIPs,
		keepVIPs:         first.enabled() && opt.KeepVIPs, status: Status{State: Initialize, Cause: "the balancer starts"},
		current: first, machine: Machine{State: Initialize, Since: time.Now(), Cause: "the balancer starts"},
		desiredChanged: make(chan struct{}, 1), changes: make(chan struct{}, 1), packets: make(chan receivedBy, 256),
		sockets: map[netip.Addr]packetConn{},
		senders: senders{}, rejections: map[rejection]time.Time{}}
}

// SetDesired sets how this balancer takes part from now on.
func (e *Elector) SetDesired(w Desired) {
	e.mu.Lock()
	e.desired = w
	e.mu.Unlock()
	signal(e.desiredChanged)
}

// Holds reports whether the VIPs are this balancer's.
func (e *Elector) Holds() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holds, nil
}

// HoldingUndecided reports whether the VIPs are held from before the election or from the previous process: another
// balancer may have taken them over since.
func (e *Elector) HoldingUndecided() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holdingUndecided
}

// Announcements counts the repeated announcements of the VIPs to neighbours, which may have cached another balancer's
// MAC address. The announcement at a takeover is not counted.
func (e *Elector) Announcements() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.announcements
}

// Changes is signalled after Holds, HoldingUndecided or Announcements may have changed.
func (e *Elector) Changes() <-chan struct{} { return e.changes }

// Status returns the present state of the election.
func (e *Elector) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Run takes part until the context ends. Then an active balancer resigns with priority 0, and holds the VIPs until
// another one advertises or its time to do so is over; Run reports whether one did. A successor announces the VIPs only
// after its first ADVERTISEMENT, and neighbours send packets here until then.
func (e *Elector) Run(ctx context.Context) (succeeded bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	e.applyDesired()
	e.publish()
	for {
		var links <-chan struct{}
		if e.link != nil {
			links = e.link.Changes()
		}
		select {
		case <-ctx.Done():
			return e.shutDown()
		case <-e.desiredChanged:
			e.applyDesired()
		case <-links:
			e.startReading()
		case r := <-e.reads:
			e.applyRead(r)
		case p := <-e.packets:
			e.handlePacket(p)
		case <-timer.C:
			e.tick()
		}
		e.publish()
		timer.Reset(e.untilDue())
	}
}

// untilDue returns the time until the next step is due.
func (e *Elector) untilDue() time.Duration {
	next := e.machine.Due
	for _, at := range []time.Time{e.retry, e.releaseAt, e.stallCheck, e.senders.nextExpiry()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return time.Hour
	}
	return max(0, time.Until(next))
}

// tick takes the steps that are due. Pending packets are handled first, because a peer is not silent while its packets
// wait.
func (e *Elector) tick() {
	e.handlePending()
	if now := time.Now(); !e.stallCheck.IsZero() && !now.Before(e.stallCheck) {
		late := now.Sub(e.stallCheck)
		e.stallCheck = time.Time{}
		if late > e.machine.stallTolerance() && late < e.machine.interval {
			e.machine = e.machine.ExtendAfterStall(now)
		}
	}
	m, actions := e.machine.HandleTimer(time.Now())
	e.apply(m, actions)
	if !time.Now().Before(e.releaseAt) {
		e.releaseAt = time.Time{}
	}
	if !e.retry.IsZero() && !time.Now().Before(e.retry) {
		e.retry = time.Time{}
		e.applyDesired()
	}
}

// handlePending handles all packets that have come.
func (e *Elector) handlePending() {
	for len(e.packets) > 0 {
		e.handlePacket(<-e.packets)
	}
	for own, socket := range e.sockets {
		for range cap(e.packets) {
			r, ok := socket.receivePending()
			if !ok {
				break
			}
			e.handlePacket(receivedBy{r, own})
		}
	}
}

// applyDesired applies the desired state.
func (e *Elector) applyDesired() {
	e.mu.Lock()
	desired := e.desired
	e.mu.Unlock()
	was := e.current
	e.current = desired
	if !was.enabled() && desired.enabled() {
		e.keepVIPs = true
	}
	if desired.Out != "" && desired.Out != was.Out {
		e.keepVIPs = false
	}
	if !desired.enabled() || was.Interface != desired.Interface || was.VRID != desired.VRID {
		e.stopElection("the configuration is another")
		e.closeAll()
	}
	if !desired.enabled() {
		return
	}
	e.apply(e.machine.SetSettings(desired.Settings, time.Now()), Actions{})
	if !reflect.DeepEqual(was.VIPs, desired.VIPs) {
		e.senders = senders{}
	}
	e.checkInterface()
}

// checkInterface takes part in the election by what is known of the interface, if it can and is to, and reads the
// interface again.
func (e *Elector) checkInterface() {
	if !e.current.enabled() {
		return
	}
	if e.link == nil {
		link, err := e.opt.Watch(e.current.Interface)
		if err != nil {
			e.fail(fmt.Errorf("take part in VRRP: %w", err))
			return
		}
		e.link, e.reads = link, make(chan linkRead, 1)
	}
	e.startReading()
	if e.linkState.Index != 0 {
		e.takePart()
	}
}

// startReading reads the interface in the background, after the read in progress if there is one.
func (e *Elector) startReading() {
	if e.readAgain = e.reading; e.readAgain {
		return
	}
	e.reading = true
	go func(link Links, reads chan<- linkRead) {
		states, err := link.States()
		reads <- linkRead{states, err}
	}(e.link, e.reads)
}

// applyRead applies the state that was read of the interface. If it could not be read, the previous one counts: sockets
// and VIPs are as they were.
func (e *Elector) applyRead(r linkRead) {
	e.reading = false
	if e.readAgain {
		e.startReading()
	}
	if r.err != nil {
		err := fmt.Errorf("take part in VRRP on %s: %w", e.current.Interface, r.err)
		if errors.Is(err, iface.ErrGone) || !e.linkState.Up || len(e.sockets) == 0 {
			e.fail(err)
			return
		}
		if err.Error() != e.linkProblem {
			e.opt.Log.Error("VRRP: "+err.Error(), logAttrs)
		}
		e.linkProblem, e.retry = err.Error(), time.Now().Add(retryInterval)
		return
	}
	e.linkProblem = ""
	if r.states[0].Index != e.linkState.Index {
		// They are bound to the interface that had the name before.
		e.closeSockets()
	}
	e.linkState = r.states[0]
	e.takePart()
}

// takePart takes part in the election if it can and is to.
func (e *Elector) takePart() {
	err := e.openSockets()
	switch {
	case err != nil:
		e.fail(err)
	case e.current.Out != "":
		e.logProblem("")
		e.resign(e.current.Out)
	case !e.linkState.Up:
		e.stopElection(fmt.Sprintf("interface %s is down", e.current.Interface))
	default:
		e.logProblem("")
		m, actions := e.machine.Start(time.Now(), "this balancer takes part")
		e.apply(m, actions)
	}
}

// fail takes no part until a retry.
func (e *Elector) fail(err error) {
	e.stopElection(err.Error())
	e.closeAll()
	e.retry = time.Now().Add(retryInterval)
	e.logProblem(err.Error())
}

// openSockets opens a socket for each family that there are VIPs of.
func (e *Elector) openSockets() error {
	if !e.linkState.Up {
		return nil
	}
	need := map[netip.Addr]bool{}
	for _, four := range []bool{true, false} {
		if len(e.vipsOf(four)) == 0 {
			continue
		}
		src, err := e.source(four)
		if err != nil {
			return err
		}
		need[src] = true
	}
	for own, socket := range e.sockets {
		if !need[own] {
			_ = socket.close()
			delete(e.sockets, own)
		}
	}
	for own := range need {
		if e.sockets[own] == nil {
			socket, err := e.opt.open(e.linkState.Name, e.linkState.Index, own)
			if err != nil {
				return err
			}
			e.sockets[own] = socket
			go e.receiveLoop(socket, own)
		}
	}
	return nil
}

// vipsOf returns the VIPs of a family, in the configuration's order.
func (e *Elector) vipsOf(four bool) (some []netip.Addr) {
	for _, vip := range e.current.VIPs {
		if vip.Is4() == four {
			some = append(some, vip)
		}
	}
	return some
}

// source is the source address of packets: an address of the interface that is no VIP, for IPv6 a link-local one (RFC
// 9568 section 5.1.2.1).
func (e *Elector) source(four bool) (netip.Addr, error) {
	for _, p := range e.linkState.Addresses {
		a := p.Addr()
		if four && a.Is4() && !slices.Contains(e.current.VIPs, a) || !four && a.Is6() && a.IsLinkLocalUnicast() {
			return a.WithZone(""), nil
		}
	}
	if four {
		return netip.Addr{},
			fmt.Errorf("take part in VRRP on %s: the interface has no IPv4 address beside the VIPs that packets could be sent from; add one", e.current.Interface)
	}
	return netip.Addr{},
		fmt.Errorf("take part in VRRP on %s: the interface has no link-local IPv6 address, which packets are sent from; `ip -6 address` shows those it has, and whether one is being tested", e.current.Interface)
}

// receiveLoop passes packets to Run until the socket is closed.
func (e *Elector) receiveLoop(socket packetConn, own netip.Addr) {
	for {
		r, err := socket.receive()
		if err != nil {
			return
		}
		select {
		case e.packets <- receivedBy{r, own}:
		default: // a flood: the protocol's own packets are few, and come again
		}
	}
}

func (e *Elector) closeSockets() {
	for own, socket := range e.sockets {
		_ = socket.close()
		delete(e.sockets, own)
	}
}

func (e *Elector) closeAll() {
	e.releaseAt, e.senders = time.Time{}, senders{} // no other router is received any more
	e.closeSockets()
	switch link, reads := e.link, e.reads; {
	case e.reading:
		go func() {
			<-reads
			link.Close()
		}()
	case link != nil:
		link.Close()
	}
	e.link, e.reads, e.reading, e.readAgain = nil, nil, false, false
	e.linkState, e.linkProblem = iface.State{}, ""
}

// stopElection stops taking part, and gives the VIPs up at once.
func (e *Elector) stopElection(why string) {
	m, actions := e.machine.Stop(time.Now(), why)
	if !actions.Changed {
		m.Cause = why
	}
	e.apply(m, actions)
}

// resign stops taking part, and leaves the VIPs to another balancer.
func (e *Elector) resign(why string) {
	if e.machine.State == Active {
		// A backup waits for Skew_Time after priority 0, and its first ADVERTISEMENT comes within an interval.
		e.releaseAt = time.Now().Add(e.machine.interval + 2*e.machine.skewTime())
	}
	e.stopElection(why)
}

// handlePacket handles a packet.
func (e *Elector) handlePacket(p receivedBy) {
	if e.sockets[p.own] == nil {
		return // closed meanwhile
	}
	if len(p.packet) > 1 && p.packet[1] != e.current.VRID {
		return // of another virtual router, which may have another version
	}
	a, err := Parse(p.packet, p.src, p.dst, p.hops)
	if err != nil {
		e.rejectPacket(p.src, err)
		return
	}
	if p.src == p.own {
		return
	}
	if !e.isOwnRouter(p.src, a) {
		e.incCounter(func(s *Status) { s.Ignored++ })
		return
	}
	e.incCounter(func(s *Status) {
		s.Received++
		s.Peer, s.PeerPriority, s.PeerInterval, s.Heard = p.src, a.Priority, a.Interval, time.Now()
	})
	if a.Priority != 0 {
		e.releaseAt = time.Time{}
	}
	if e.keepVIPs = e.keepVIPs && a.Priority == 0; e.machine.State == Active && a.Priority != 0 {
		e.recordConflict(p.src, a)
	}
	four := p.own.Is4()
	m, actions := e.machine.HandleAdvert(time.Now(), Advertised{From: p.src, Priority: a.Priority, Interval: a.Interval,
		Own:      p.own,
		TieBreak: four || len(e.vipsOf(true)) == 0})
	e.apply(m, actions)
}

// rejectPacket counts a packet that is not taken, and logs the first of a kind. The senders are easily forged, so the
// number of kinds is bounded.
func (e *Elector) rejectPacket(src netip.Addr, err error) {
	reason := fmt.Sprintf("a packet of %s was not taken: %v", src, err)
	now, kind := time.Now(), rejection{src, err.Error()}
	maps.DeleteFunc(e.rejections, func(_ rejection, logged time.Time) bool {
		return now.Sub(logged) >= rejectionPause
	})
	if _, logged := e.rejections[kind]; !logged && len(e.rejections) < maxSenders {
		e.rejections[kind] = now
		e.opt.Log.Warn("VRRP: "+reason, logAttrs)
	}
	e.incCounter(func(s *Status) { s.Rejected++; s.Reason = reason })
}

func (e *Elector) incCounter(change func(*Status)) {
	e.mu.Lock()
	change(&e.status)
	e.mu.Unlock()
}

var logAttrs = events.About{Kind: events.KindRole}.Attr()

// abbreviate returns a list's beginning.
func abbreviate(list []netip.Addr) string {
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%v and %d more", list[:most], len(list)-most)
	}
	return fmt.Sprint(list)
}

// announcedVIPs returns a copy of as many VIPs as a packet has room for.
func announcedVIPs(vips []netip.Addr) []netip.Addr {
	most := MaxIPv6
	if len(vips) > 0 && vips[0].Is4() {
		most = MaxIPv4
	}
	return slices.Clone(vips[:min(len(vips), most)])
}

// recordConflict records that another balancer is active beside this one. One that may not have received our last
// ADVERTISEMENT yet does not count.
func (e *Elector) recordConflict(src netip.Addr, a Advert) {
	now := time.Now()
	if now.Sub(e.machine.Since) < e.machine.Interval {
		return
	}
	if now.Sub(e.conflict.last) > 3*e.machine.Interval {
		e.conflict.first = now
		e.incCounter(func(s *Status) { s.Conflicts++ })
		e.opt.Log.Warn(fmt.Sprintf(
			"VRRP: %s is active beside this balancer, with the priority %d: the one with less yields; they had received no advertisement of each other before", src, a.Priority), logAttrs)
	}
	e.conflict.last = now
}

// apply stores the machine, and executes its actions.
func (e *Elector) apply(m Machine, actions Actions) {
	was := e.machine.State
	if m.Due != e.machine.Due {
		e.stallCheck = time.Time{}
		if at := m.Due.Add(-2 * m.stallTolerance()); m.State == Backup && at.After(time.Now()) {
			e.stallCheck = at
		}
	}
	e.machine = m
	if actions.Send {
		e.send(actions.Resign)
	}
	if actions.Announce {
		e.mu.Lock()
		e.announcements++
		e.mu.Unlock()
		signal(e.changes)
	}
	if !actions.Changed {
		return
	}
	if m.State != Backup {
		e.keepVIPs = false
	}
	if m.State == Active {
		e.releaseAt = time.Time{}
	}
	e.incCounter(func(s *Status) { s.Changes++ })
	e.publish()
	level := slog.LevelInfo
	if was == Active {
		level = slog.LevelWarn
	}
	e.opt.Log.Log(context.Background(), level, fmt.Sprintf("VRRP: %s → %s: %s", was, m.State, m.Cause), logAttrs)
}

// send announces the VIPs, or that they are given up.
func (e *Elector) send(leave bool) {
	failed := ""
	for own, socket := range e.sockets {
		a := Advert{VRID: e.current.VRID, Priority: e.machine.Priority, Interval: e.machine.Interval,
			Addresses: announcedVIPs(e.vipsOf(own.Is4()))}
		if leave {
			a.Priority = 0
		}
		if len(a.Addresses) == 0 {
			continue
		}
		if err := socket.send(a); err != nil {
			failed = fmt.Sprintf("announce the VIPs from %s on %s: %v", own, e.current.Interface, err)
			continue
		}
		e.incCounter(func(s *Status) { s.Sent++ })
	}
	e.logProblem(failed)
}

// logProblem keeps a problem, empty where there is none, and logs one that is new.
func (e *Elector) logProblem(problem string) {
	if problem != "" && problem != e.loggedProblem {
		e.opt.Log.Error("VRRP: "+problem, logAttrs)
	}
	e.loggedProblem = problem
}

// publish makes Run's findings visible to Status.
func (e *Elector) publish() {
	e.mu.Lock()
	s := &e.status
	s.State, s.Since, s.Cause, s.Priority = e.machine.State, e.machine.Since, e.machine.Cause, e.machine.Priority
	s.BothActive = e.machine.State == Active && !e.conflict.last.IsZero() &&
		time.Since(e.conflict.last) < 3*e.machine.Interval
	s.Problem = cmp.Or(e.loggedProblem, e.linkProblem)
	e.senders.expire(time.Now())
	if differ := e.senders.sorted(true); s.Problem == "" && len(differ) > 0 {
		s.Problem = differ[0].logDifference(e.current.VRID, announcedVIPs(e.vipsOf(differ[0].Address.Is4())))
	}
	s.OtherRouters = nil
	for _, o := range e.senders.sorted(false) {
		s.OtherRouters = append(s.OtherRouters, o.OtherRouter)
	}
	if !e.releaseAt.IsZero() {
		s.State = Active // until another one is active
	}
	holds := !e.current.enabled() || e.machine.State == Active || e.keepVIPs || !e.releaseAt.IsZero()
	keeping := e.current.enabled() && e.machine.State != Active && e.keepVIPs
	changed := e.holds != holds || e.holdingUndecided != keeping
	e.holds, e.holdingUndecided = holds, keeping
	e.mu.Unlock()
	if changed {
		signal(e.changes)
	}
}

// shutDown gives the VIPs up, and reports whether another balancer has taken them over.
func (e *Elector) shutDown() (succeeded bool) {
	e.resign("the balancer ends")
	if !e.releaseAt.IsZero() {
		e.publish()
		succeeded = e.awaitSuccessor()
	}
	e.releaseAt = time.Time{}
	e.publish()
	e.closeAll()
	return succeeded
}

// awaitSuccessor waits until another balancer advertises as active, or its time to do so is over.
func (e *Elector) awaitSuccessor() bool {
	bound := time.NewTimer(time.Until(e.releaseAt))
	defer bound.Stop()
	for {
		select {
		case <-bound.C:
			return false
		case p := <-e.packets:
			if e.handlePacket(p); e.releaseAt.IsZero() {
				return true
			}
		}
	}
}
