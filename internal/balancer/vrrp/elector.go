// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// Wanted is how a balancer is to take part in an election. The zero value takes no part, and holds the VIPs.
type Wanted struct {
	Settings
	// Interface is the one on which advertisements are sent.
	Interface string
	// VIPs are one group, of both families.
	VIPs []netip.Addr
	// Out says why this balancer takes no part now, and leaves the VIPs to others; empty: it does.
	Out string
}

func (w Wanted) on() bool { return w.VRID != 0 }

// Status is the state of the election.
type Status struct {
	State State
	// Since is when the state began, and Why its cause.
	Since time.Time
	Why   string
	// Priority is the own one, as it is announced now.
	Priority uint8
	// Peer and the fields below are the last balancer that was heard as active, the priority and interval that it sent,
	// and when.
	Peer         netip.Addr
	PeerPriority uint8
	PeerInterval time.Duration
	Heard        time.Time
	// Both: the peer and this balancer are active at once.
	Both bool
	// Changes counts changes of the state, Sent and Received ADVERTISEMENTS, Rejected packets that were not taken,
	// Ignored ones of other virtual routers with the same id, and Conflicts how often two balancers were found active.
	Changes, Sent, Received, Rejected, Ignored, Conflicts uint64
	// Foreign are other virtual routers with the same id that were heard lately.
	Foreign []Foreign
	// Reason is why the last of those was rejected.
	Reason string
	// Problem says why this balancer cannot take part, or hears packets that cannot be right.
	Problem string
}

// Links is the interface that is announced on.
type Links interface {
	// States returns the state of the interface, as the only element.
	States() ([]iface.State, error)
	// Changes is signalled when States may return something else.
	Changes() <-chan struct{}
	// Close ends the following of the interface.
	Close()
}

// wire is a socket of one family.
type wire interface {
	send(Advert) error
	receive() (received, error)
	waiting() (received, bool)
	close() error
}

// Options are the parts of an elector.
type Options struct {
	Log *slog.Logger
	// Watch watches an interface.
	Watch func(name string) (Links, error)
	// Keeps: the previous process, which was killed, has left the VIPs on the interface. They stay until the election
	// has an outcome.
	Keeps bool
	// open opens a socket; nil: a raw one.
	open func(link string, index int, src netip.Addr) (wire, error)
}

// retryEvery is how long after a failure the interface is looked for again.
const retryEvery = time.Second

// Elector takes part in the election of the balancer that holds the VIPs. Its methods may be called from any
// goroutine.
type Elector struct {
	opt     Options
	asked   chan struct{}
	changes chan struct{}

	mu      sync.Mutex
	wanted  Wanted
	status  Status
	holds   bool
	keeping bool
	// announcements counts how often the VIPs were to be announced to the neighbours again.
	announcements uint64

	// Only Run uses the fields below.
	in      Wanted
	machine Machine
	link    Links
	looked  iface.State
	sockets map[netip.Addr]wire // by the address that they send from
	packets chan from
	// keeps: the VIPs were held before there was an election, and stay until it has an outcome.
	keeps bool
	// leaving: the VIPs were given up, and are held until another balancer is heard that is active, or this time.
	leaving time.Time
	retry   time.Time
	// check is when it is looked, before a silence counts, whether this process runs; zero: it was.
	check time.Time
	// beside is when another active one was heard first and last while this balancer is.
	beside struct{ first, last time.Time }
	told   string // the last problem that was logged
	others others
}

// from is a packet, and the address that its socket sends from.
type from struct {
	received
	own netip.Addr
}

// New returns an elector that takes the role of Wanted: until Run has decided otherwise, a balancer that is to take
// part does not hold the VIPs.
func New(opt Options, first Wanted) *Elector {
	if opt.open == nil {
		opt.open = func(link string, index int, src netip.Addr) (wire, error) { return open(link, index, src) }
	}
	return &Elector{opt: opt, wanted: first, holds: !first.on() || opt.Keeps, keeping: first.on() && opt.Keeps,
		keeps: first.on() && opt.Keeps, status: Status{State: Initialize, Why: "the balancer starts"},
		in: first, machine: Machine{State: Initialize, Since: time.Now(), Why: "the balancer starts"},
		asked: make(chan struct{}, 1), changes: make(chan struct{}, 1), packets: make(chan from, 256),
		sockets: map[netip.Addr]wire{},
		others:  others{}}
}

// Want sets how this balancer takes part from now on.
func (e *Elector) Want(w Wanted) {
	e.mu.Lock()
	e.wanted = w
	e.mu.Unlock()
	signal(e.asked)
}

// Holds says whether the VIPs are this balancer's.
func (e *Elector) Holds() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holds, nil
}

// Keeping says that the VIPs are held as they were before there was an election, or by the previous process: another
// balancer may have taken them over since.
func (e *Elector) Keeping() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.keeping
}

// Announcements counts how often the VIPs were to be announced to the neighbours again, which may know them at another
// balancer's MAC address. That they are announced when they are taken is not counted.
func (e *Elector) Announcements() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.announcements
}

// Changes is signalled after Holds, Keeping or Announcements may have changed.
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

// Run takes part until the context ends. Then an active balancer says that it gives the VIPs up, and holds them until
// another one is heard, or would have been; Run says whether one was. It announces the VIPs only after it was heard,
// and neighbours send packets here until then.
func (e *Elector) Run(ctx context.Context) (succeeded bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	e.follow()
	e.publish()
	for {
		var links <-chan struct{}
		if e.link != nil {
			links = e.link.Changes()
		}
		select {
		case <-ctx.Done():
			return e.end()
		case <-e.asked:
			e.follow()
		case <-links:
			e.look()
		case p := <-e.packets:
			e.take(p)
		case <-timer.C:
			e.tick()
		}
		e.publish()
		timer.Reset(e.next())
	}
}

// next is how long nothing is to be done.
func (e *Elector) next() time.Duration {
	next := e.machine.Due
	for _, at := range []time.Time{e.retry, e.leaving, e.check, e.others.next()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return time.Hour
	}
	return max(0, time.Until(next))
}

// tick takes the steps that are due. Packets that have come before count first: a silence is none while packets wait.
func (e *Elector) tick() {
	e.drain()
	if now := time.Now(); !e.check.IsZero() && !now.Before(e.check) {
		late := now.Sub(e.check)
		e.check = time.Time{}
		if late > e.machine.slack() && late < e.machine.interval {
			e.machine = e.machine.Stalled(now)
		}
	}
	m, do := e.machine.Tick(time.Now())
	e.carryOut(m, do)
	if !time.Now().Before(e.leaving) {
		e.leaving = time.Time{}
	}
	if !e.retry.IsZero() && !time.Now().Before(e.retry) {
		e.retry = time.Time{}
		e.follow()
	}
}

// drain takes all packets up that have come.
func (e *Elector) drain() {
	for len(e.packets) > 0 {
		e.take(<-e.packets)
	}
	for own, socket := range e.sockets {
		for range cap(e.packets) {
			r, ok := socket.waiting()
			if !ok {
				break
			}
			e.take(from{r, own})
		}
	}
}

// follow does as is wanted now.
func (e *Elector) follow() {
	e.mu.Lock()
	wanted := e.wanted
	e.mu.Unlock()
	was := e.in
	e.in = wanted
	if !was.on() && wanted.on() {
		e.keeps = true
	}
	if wanted.Out != "" && wanted.Out != was.Out {
		e.keeps = false
	}
	if !wanted.on() || was.Interface != wanted.Interface || was.VRID != wanted.VRID {
		e.stop("the configuration is another")
		e.closeAll()
	}
	if !wanted.on() {
		return
	}
	e.machine = e.machine.With(wanted.Settings, time.Now())
	if !reflect.DeepEqual(was.VIPs, wanted.VIPs) {
		e.others = others{}
	}
	e.look()
}

// look reads the interface, and takes part if it can and is to.
func (e *Elector) look() {
	if !e.in.on() {
		return
	}
	err := e.open()
	switch {
	case err != nil:
		e.stop(err.Error())
		e.closeAll()
		e.retry = time.Now().Add(retryEvery)
		e.logProblem(err.Error())
	case e.in.Out != "":
		e.logProblem("")
		e.leave(e.in.Out)
	case !e.looked.Up:
		e.stop(fmt.Sprintf("interface %s is down", e.in.Interface))
	default:
		e.logProblem("")
		m, do := e.machine.Start(time.Now(), "this balancer takes part")
		e.carryOut(m, do)
	}
}

// open has a socket for each family that there are VIPs of.
func (e *Elector) open() (err error) {
	if e.link == nil {
		if e.link, err = e.opt.Watch(e.in.Interface); err != nil {
			e.link = nil
			return fmt.Errorf("take part in VRRP: %w", err)
		}
	}
	states, err := e.link.States()
	if err != nil {
		return fmt.Errorf("take part in VRRP on %s: %w", e.in.Interface, err)
	}
	if states[0].Index != e.looked.Index {
		// They are bound to the interface that had the name before.
		e.closeSockets()
	}
	e.looked = states[0]
	if !e.looked.Up {
		return nil
	}
	need := map[netip.Addr]bool{}
	for _, four := range []bool{true, false} {
		if len(e.vips(four)) == 0 {
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
			socket, err := e.opt.open(e.looked.Name, e.looked.Index, own)
			if err != nil {
				return err
			}
			e.sockets[own] = socket
			go e.listen(socket, own)
		}
	}
	return nil
}

// vips returns the VIPs of a family, in the configuration's order.
func (e *Elector) vips(four bool) (some []netip.Addr) {
	for _, vip := range e.in.VIPs {
		if vip.Is4() == four {
			some = append(some, vip)
		}
	}
	return some
}

// source is the source address of packets: an address of the interface that is no VIP, for IPv6 a link-local one (RFC
// 9568 section 5.1.2.1).
func (e *Elector) source(four bool) (netip.Addr, error) {
	for _, p := range e.looked.Addresses {
		a := p.Addr()
		if four && a.Is4() && !slices.Contains(e.in.VIPs, a) || !four && a.Is6() && a.IsLinkLocalUnicast() {
			return a.WithZone(""), nil
		}
	}
	if four {
		return netip.Addr{},
			fmt.Errorf("take part in VRRP on %s: the interface has no IPv4 address beside the VIPs that packets could be sent from; add one", e.in.Interface)
	}
	return netip.Addr{},
		fmt.Errorf("take part in VRRP on %s: the interface has no link-local IPv6 address, which packets are sent from; `ip -6 address` shows those it has, and whether one is being tested", e.in.Interface)
}

// listen hands packets on until the socket is closed.
func (e *Elector) listen(socket wire, own netip.Addr) {
	for {
		r, err := socket.receive()
		if err != nil {
			return
		}
		select {
		case e.packets <- from{r, own}:
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
	e.leaving, e.others = time.Time{}, others{} // no other one is heard any more
	e.closeSockets()
	if e.link != nil {
		e.link.Close()
		e.link = nil
	}
}

// stop takes no part any more.
func (e *Elector) stop(why string) {
	m, do := e.machine.Stop(time.Now(), why)
	if !do.Changed {
		m.Why = why
	}
	e.carryOut(m, do)
}

// leave takes no part any more, and leaves the VIPs to another balancer.
func (e *Elector) leave(why string) {
	if e.machine.State == Active {
		// As long as a backup waits after such a packet, and one interval until it is heard.
		e.leaving = time.Now().Add(e.machine.interval + 2*e.machine.skew())
	}
	e.stop(why)
}

// take takes a packet up.
func (e *Elector) take(p from) {
	if e.sockets[p.own] == nil {
		return // closed meanwhile
	}
	a, err := Parse(p.packet, p.src, p.dst, p.hops)
	if err != nil {
		e.reject(p.src, err)
		return
	}
	if a.VRID != e.in.VRID || p.src == p.own {
		return
	}
	if !e.compare(p.src, a) {
		e.count(func(s *Status) { s.Ignored++ })
		return
	}
	e.count(func(s *Status) {
		s.Received++
		s.Peer, s.PeerPriority, s.PeerInterval, s.Heard = p.src, a.Priority, a.Interval, time.Now()
	})
	if a.Priority != 0 {
		e.leaving = time.Time{}
	}
	if e.keeps = e.keeps && a.Priority == 0; e.machine.State == Active && a.Priority != 0 {
		e.meet(p.src, a)
	}
	four := p.own.Is4()
	m, do := e.machine.Hear(time.Now(), Heard{From: p.src, Priority: a.Priority, Interval: a.Interval, Own: p.own,
		Ties: four || len(e.vips(true)) == 0})
	e.carryOut(m, do)
}

// reject counts a packet that is not taken, and logs the first of a kind.
func (e *Elector) reject(src netip.Addr, err error) {
	reason := fmt.Sprintf("a packet of %s was not taken: %v", src, err)
	if e.Status().Reason != reason {
		e.opt.Log.Warn("VRRP: "+reason, about)
	}
	e.count(func(s *Status) { s.Rejected++; s.Reason = reason })
}

func (e *Elector) count(change func(*Status)) {
	e.mu.Lock()
	change(&e.status)
	e.mu.Unlock()
}

var about = events.About{Kind: events.KindRole}.Attr()

// brief is a list's beginning.
func brief(list []netip.Addr) string {
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%v and %d more", list[:most], len(list)-most)
	}
	return fmt.Sprint(list)
}

// announced returns a copy of as many VIPs as a packet has room for.
func announced(vips []netip.Addr) []netip.Addr {
	most := MostIPv6
	if len(vips) > 0 && vips[0].Is4() {
		most = MostIPv4
	}
	return slices.Clone(vips[:min(len(vips), most)])
}

// meet notes that another balancer is active beside this one. One that has not heard yet of a change of the
// last moment is none.
func (e *Elector) meet(src netip.Addr, a Advert) {
	now := time.Now()
	if now.Sub(e.machine.Since) < e.machine.Interval {
		return
	}
	if now.Sub(e.beside.last) > 3*e.machine.Interval {
		e.beside.first = now
		e.count(func(s *Status) { s.Conflicts++ })
		e.opt.Log.Warn(fmt.Sprintf(
			"VRRP: %s is active beside this balancer, with the priority %d: the one with less yields; they have not heard each other before", src, a.Priority), about)
	}
	e.beside.last = now
}

// carryOut takes the machine over, and takes its steps.
func (e *Elector) carryOut(m Machine, do Do) {
	was := e.machine.State
	if m.Due != e.machine.Due {
		e.check = time.Time{}
		if at := m.Due.Add(-2 * m.slack()); m.State == Backup && at.After(time.Now()) {
			e.check = at
		}
	}
	e.machine = m
	if do.Send {
		e.send(do.Leave)
	}
	if do.Announce {
		e.mu.Lock()
		e.announcements++
		e.mu.Unlock()
		signal(e.changes)
	}
	if !do.Changed {
		return
	}
	if m.State != Backup {
		e.keeps = false
	}
	if m.State == Active {
		e.leaving = time.Time{}
	}
	e.count(func(s *Status) { s.Changes++ })
	e.publish()
	level := slog.LevelInfo
	if was == Active {
		level = slog.LevelWarn
	}
	e.opt.Log.Log(context.Background(), level, fmt.Sprintf("VRRP: %s → %s: %s", was, m.State, m.Why), about)
}

// send announces the VIPs, or that they are given up.
func (e *Elector) send(leave bool) {
	failed := ""
	for own, socket := range e.sockets {
		a := Advert{VRID: e.in.VRID, Priority: e.machine.Priority, Interval: e.machine.Interval,
			Addresses: announced(e.vips(own.Is4()))}
		if leave {
			a.Priority = 0
		}
		if len(a.Addresses) == 0 {
			continue
		}
		if err := socket.send(a); err != nil {
			failed = fmt.Sprintf("announce the VIPs from %s on %s: %v", own, e.in.Interface, err)
			continue
		}
		e.count(func(s *Status) { s.Sent++ })
	}
	e.logProblem(failed)
}

// logProblem keeps a problem, empty where there is none, and logs one that is new.
func (e *Elector) logProblem(problem string) {
	if problem != "" && problem != e.told {
		e.opt.Log.Error("VRRP: "+problem, about)
	}
	e.told = problem
}

// publish makes Run's findings visible to Status.
func (e *Elector) publish() {
	e.mu.Lock()
	s := &e.status
	s.State, s.Since, s.Why, s.Priority = e.machine.State, e.machine.Since, e.machine.Why, e.machine.Priority
	s.Both = e.machine.State == Active && !e.beside.last.IsZero() && time.Since(e.beside.last) < 3*e.machine.Interval
	s.Problem = e.told
	e.others.forget(time.Now())
	if differ := e.others.sorted(true); s.Problem == "" && len(differ) > 0 {
		s.Problem = differ[0].differs(e.in.VRID, announced(e.vips(differ[0].Address.Is4())))
	}
	s.Foreign = nil
	for _, o := range e.others.sorted(false) {
		s.Foreign = append(s.Foreign, o.Foreign)
	}
	if !e.leaving.IsZero() {
		s.State = Active // until another one is
	}
	holds := !e.in.on() || e.machine.State == Active || e.keeps || !e.leaving.IsZero()
	keeping := e.in.on() && e.machine.State != Active && e.keeps
	changed := e.holds != holds || e.keeping != keeping
	e.holds, e.keeping = holds, keeping
	e.mu.Unlock()
	if changed {
		signal(e.changes)
	}
}

// end gives the VIPs up, and says whether another balancer was heard that has taken them.
func (e *Elector) end() (succeeded bool) {
	e.leave("the balancer ends")
	if !e.leaving.IsZero() {
		e.publish()
		succeeded = e.awaitSuccessor()
	}
	e.leaving = time.Time{}
	e.publish()
	e.closeAll()
	return succeeded
}

// awaitSuccessor waits until another balancer is heard that is active, or would have been.
func (e *Elector) awaitSuccessor() bool {
	bound := time.NewTimer(time.Until(e.leaving))
	defer bound.Stop()
	for {
		select {
		case <-bound.C:
			return false
		case p := <-e.packets:
			if e.take(p); e.leaving.IsZero() {
				return true
			}
		}
	}
}
