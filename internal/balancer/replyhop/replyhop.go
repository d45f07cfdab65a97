// SPDX-License-Identifier: Apache-2.0

// Package replyhop confirms the next hops of replies (modes nat and fullnat): routers, and clients on a link.
//
// The data plane asks the kernel's routes and neighbours where a reply goes (bpf_fib_lookup). Such a lookup does
// not use the neighbour's entry as a packet would that the kernel sends, so the kernel does not find out whether the
// MAC address in it is still right: the entry becomes stale and stays so, and after a router's MAC address has changed
// without an announcement, replies are lost for as long as the router lets them be. Here those neighbours are
// probed while replies go to them, as package neigh does with backends.
package replyhop

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/neigh"
)

const (
	// pollInterval is how often the data plane is asked where replies go.
	pollInterval = time.Second
	// idleTimeout is how long after its last reply a neighbour is confirmed: connections pause.
	idleTimeout = 10 * time.Second
	// replyTimeout is how long one does not answer before that is reported. Its MAC address may have changed: then the
	// kernel's question to everybody is answered at once.
	replyTimeout = 1500 * time.Millisecond
)

// Source says where replies have gone within the last while.
type Source interface {
	// ReplyHops returns the next hops to which replies have gone within that time.
	ReplyHops(within time.Duration) ([]lb.ReplyHop, error)
}

// resolver is a *neigh.Resolver.
type resolver interface {
	SetAddresses([]netip.Addr) error
	Known([]netip.Addr) ([]netip.Addr, error)
	Entries() map[netip.Addr]neigh.Entry
	Close() error
}

// key names a neighbour.
type key struct {
	index   int // of the interface
	address netip.Addr
}

// hop is a neighbour that replies go to.
type hop struct {
	key
	router    bool
	lastReply time.Time // when a reply last went there, as of the poll
	mac       net.HardwareAddr
	// silentSince is since when it does not answer, zero if it does, and reason why; logged says that it was
	// logged.
	silentSince time.Time
	reason      string
	logged      bool
}

// link is an interface that replies leave by.
type link struct {
	name     string
	resolver resolver
	watched  []netip.Addr
}

// Confirmer keeps the kernel's neighbour entries of next hops right while replies go to them.
type Confirmer struct {
	source Source
	log    *slog.Logger
	// open has a resolver work on an interface; tests have another.
	open func(ctx context.Context, index int) (string, resolver, error)
	// The loop's own.
	links map[int]*link
	hops  map[key]*hop
	fault string // why it could not be done, as it was logged last

	mu       sync.Mutex
	problems []string
}

// New returns a Confirmer for the network namespace of the calling thread. It works in Run.
func New(source Source, log *slog.Logger) (*Confirmer, error) {
	ns, err := namespace.Current()
	if err != nil {
		return nil, fmt.Errorf("confirm the next hops of replies: %w", err)
	}
	open := func(ctx context.Context, index int) (name string, r resolver, err error) {
		err = ns.Do(func() error {
			nic, err := net.InterfaceByIndex(index)
			if err != nil {
				return fmt.Errorf("look for the interface with the index %d: %w", index, err)
			}
			name = nic.Name
			r, err = neigh.NewConfirming(ctx, name)
			return err
		})
		return name, r, err
	}
	return newConfirmer(source, log, open), nil
}

func newConfirmer(source Source, log *slog.Logger, open func(context.Context, int) (string, resolver,
	error)) *Confirmer {
	return &Confirmer{source: source, log: log, open: open, links: map[int]*link{}, hops: map[key]*hop{}}
}

// Problems says which next hops do not answer, a line each for routers, and one for an interface's clients. It may be
// called from any goroutine.
func (c *Confirmer) Problems() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.problems)
}

// Run confirms next hops until the context ends.
func (c *Confirmer) Run(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	defer c.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.logFault(c.poll(ctx, time.Now()))
		c.report(time.Now())
	}
}

// close ends the search for neighbours.
func (c *Confirmer) close() {
	for index, l := range c.links {
		l.resolver.Close()
		delete(c.links, index)
	}
}

// logFault logs why next hops cannot be confirmed, once.
func (c *Confirmer) logFault(err error) {
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if fault != "" && fault != c.fault {
		c.log.Warn(fmt.Sprintf("next hops of replies are not confirmed: %v", err))
	}
	c.fault = fault
}

// poll has those neighbours watched that replies go to.
func (c *Confirmer) poll(ctx context.Context, now time.Time) (err error) {
	noted, err := c.source.ReplyHops(2 * pollInterval)
	if err != nil {
		return err
	}
	added := map[int][]lb.ReplyHop{}
	for _, n := range noted {
		if h := c.hops[keyOf(n)]; h != nil {
			h.lastReply, h.router = now, h.router || n.Router
		} else {
			added[n.Interface] = append(added[n.Interface], n)
		}
	}
	for index, hops := range added {
		err = cmp.Or(err, c.addHops(ctx, index, hops, now))
	}
	for k, h := range c.hops {
		if now.Sub(h.lastReply) > idleTimeout {
			delete(c.hops, k)
		}
	}
	return cmp.Or(err, c.watchHops())
}

func keyOf(n lb.ReplyHop) key { return key{n.Interface, n.Address} }

// addHops takes new neighbours in, of those that the kernel has an entry of: two CPUs may have written an element of
// the table at once, so that it is a mixture.
func (c *Confirmer) addHops(ctx context.Context, index int, hops []lb.ReplyHop, now time.Time) error {
	l := c.links[index]
	if l == nil {
		name, r, err := c.open(ctx, index)
		if err != nil {
			return err
		}
		l = &link{name: name, resolver: r}
		c.links[index] = l
	}
	var addresses []netip.Addr
	for _, n := range hops {
		addresses = append(addresses, n.Address)
	}
	known, err := l.resolver.Known(addresses)
	if err != nil {
		return err
	}
	for _, n := range hops {
		if !slices.Contains(known, n.Address) {
			continue
		}
		if h := c.hops[keyOf(n)]; h != nil {
			h.router = h.router || n.Router
			continue
		}
		c.hops[keyOf(n)] = &hop{key: keyOf(n), router: n.Router, lastReply: now}
	}
	return nil
}

// watchHops gives each interface's resolver its neighbours, and releases interfaces that have none any more.
func (c *Confirmer) watchHops() (err error) {
	wanted := map[int][]netip.Addr{}
	for k := range c.hops {
		wanted[k.index] = append(wanted[k.index], k.address)
	}
	for index, l := range c.links {
		addresses := wanted[index]
		if len(addresses) == 0 {
			l.resolver.Close()
			delete(c.links, index)
			continue
		}
		slices.SortFunc(addresses, netip.Addr.Compare)
		if slices.Equal(addresses, l.watched) {
			continue
		}
		if failed := l.resolver.SetAddresses(addresses); failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		l.watched = addresses
	}
	return err
}

// report logs changes of the neighbours, and notes which do not answer.
func (c *Confirmer) report(now time.Time) {
	entries := map[int]map[netip.Addr]neigh.Entry{}
	for index, l := range c.links {
		entries[index] = l.resolver.Entries()
	}
	var silent []*hop
	for k, h := range c.hops {
		if e, watched := entries[k.index][k.address]; watched && c.updateHop(h, e, now) {
			silent = append(silent, h)
		}
	}
	slices.SortFunc(silent, func(a, b *hop) int {
		return cmp.Or(cmp.Compare(a.index, b.index), a.address.Compare(b.address))
	})
	problems := c.updateProblems(silent)
	c.mu.Lock()
	c.problems = problems
	c.mu.Unlock()
}

// updateHop takes the kernel's state of a neighbour over, and reports whether it has not answered for some time.
func (c *Confirmer) updateHop(h *hop, e neigh.Entry, now time.Time) bool {
	if e.State == neigh.Failed {
		if h.silentSince.IsZero() {
			h.silentSince = now
		}
		h.reason = e.Reason
		return now.Sub(h.silentSince) >= replyTimeout
	}
	if e.State != neigh.Reachable {
		return h.logged // being asked, or announced: it has not answered
	}
	about := events.About{Kind: events.KindPath}.Attr()
	switch {
	case h.logged:
		c.log.Info(fmt.Sprintf("%s answers again, with the MAC address %s", c.describe(h), e.MAC), about)
	case h.mac != nil && !bytes.Equal(h.mac, e.MAC):
		c.log.Info(fmt.Sprintf("%s has another MAC address, to which replies go now: %s → %s", c.describe(h), h.mac,
			e.MAC), about)
	}
	h.mac, h.silentSince, h.logged = e.MAC, time.Time{}, false
	return false
}

// describe returns "the router 192.0.2.1 on eth0".
func (c *Confirmer) describe(h *hop) string {
	kind := "the client"
	if h.router {
		kind = "the router"
	}
	return fmt.Sprintf("%s %s on %s", kind, h.address, c.links[h.index].name)
}

// maxNamed is how many clients a line names.
const maxNamed = 5

// updateProblems returns the problems, and logs those that are new. A router that is silent concerns all behind it;
// clients come and go.
func (c *Confirmer) updateProblems(silent []*hop) (problems []string) {
	about := events.About{Kind: events.KindPath}.Attr()
	clients := map[int][]*hop{}
	for _, h := range silent {
		if !h.router {
			clients[h.index] = append(clients[h.index], h)
			continue
		}
		line := fmt.Sprintf("%s %s: replies (modes nat and fullnat) to clients behind it are lost",
			c.describe(h), h.reason)
		problems = append(problems, line)
		if !h.logged {
			c.log.Warn(line, about)
		}
		h.logged = true
	}
	for index, of := range clients {
		line := fmt.Sprintf(
			"replies (modes nat and fullnat) to %d clients on %s are lost, for they do not answer ARP requests or neighbour solicitations: %s",
			len(of), c.links[index].name, listHops(of))
		problems = append(problems, line)
		if slices.ContainsFunc(of, func(h *hop) bool { return !h.logged }) {
			c.log.Info(line, about)
		}
		for _, h := range of {
			h.logged = true
		}
	}
	slices.Sort(problems)
	return problems
}

// listHops names the first of them.
func listHops(of []*hop) (list string) {
	for i, h := range of {
		switch {
		case i == maxNamed:
			return fmt.Sprintf("%s, and %d more", list, len(of)-i)
		case i > 0:
			list += ", "
		}
		list += h.address.String()
	}
	return list
}
