// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// Identity is what the process is known by among the balancers of a host, to those that are
// started later: the interface that carries its VIPs.
type Identity interface {
	// Take has it known by another interface, too. On an error nothing has changed.
	Take(link string) error
	// Release has it not known by an interface any more.
	Release(link string) error
}

// interfaces are those that the balancer works on: which ones are watched, where paths lead,
// and what the process is known by. What is new is there before anything else is brought, and
// what was before goes when everything else is retired.
type interfaces struct{ c *Controller }

func (n interfaces) change(before, next *view) (bring, retire []step) {
	if slices.Equal(before.cfg.Interfaces, next.cfg.Interfaces) || len(before.links) == 0 {
		return nil, nil
	}
	old, now := before.cfg.Interfaces, next.cfg.Interfaces
	c := n.c
	bring = []step{{
		do:   func() error { return c.take(old[0], now[0]) },
		undo: func() error { return c.release(now[0], old[0]) },
	}, {
		do:   func() error { return c.follow(now) },
		undo: func() error { return c.follow(old) },
	}}
	retire = []step{
		{do: func() error { return c.opt.Paths.Use(now) }},
		{do: func() error { return c.release(old[0], now[0]) }},
	}
	return bring, retire
}

// take has the process known by the interface that is to be the first, and release by that one
// no more which is not.
func (c *Controller) take(was, is string) error {
	if c.opt.Identity == nil || was == is {
		return nil
	}
	return c.opt.Identity.Take(is)
}

func (c *Controller) release(was, is string) error {
	if c.opt.Identity == nil || was == is {
		return nil
	}
	return c.opt.Identity.Release(was)
}

// follow watches interfaces. Their states are those of the view until they are read again.
func (c *Controller) follow(names []string) error {
	err := c.opt.Links.Follow(names)
	c.interfaces.MarkStale()
	c.soon()
	return err
}

// look reads the states of the interfaces of a configuration that is to come, and has paths
// looked for by these, too.
func (c *Controller) look(r *reload) (err error) {
	r.links = c.links
	names := r.new.cfg.Interfaces
	if slices.Equal(names, c.view.cfg.Interfaces) {
		return nil
	}
	if r.links, err = c.opt.Links.Look(names); err != nil {
		return r.new.cfg.At(r.new.cfg.InterfaceField(), "%v", err)
	}
	r.looks = true
	if err := c.opt.Paths.Use(c.union(r)); err != nil {
		return r.new.cfg.At(r.new.cfg.InterfaceField(), "%v", err)
	}
	return nil
}

// union names the interfaces of before, and those to come that are none of them.
func (c *Controller) union(r *reload) []string {
	names := slices.Clone(c.view.cfg.Interfaces)
	for i, link := range r.links {
		if !slices.ContainsFunc(c.links, func(o iface.State) bool { return sameLink(o, link) }) {
			names = append(names, r.new.cfg.Interfaces[i])
		}
	}
	return names
}

// lookBack has paths looked for by the interfaces in use only, after a reload was refused.
func (c *Controller) lookBack(r *reload) {
	if !r.looks {
		return
	}
	if err := c.opt.Paths.Use(c.view.cfg.Interfaces); err != nil {
		c.opt.Log.Warn(fmt.Sprintf("looking for the backends: %v", err))
	}
}

// within returns a route as it is for a balancer on these interfaces: while they change, paths
// are looked for by those before and after.
func within(links []iface.State, r paths.Route) paths.Route {
	if r.Fault != paths.None || slices.ContainsFunc(links, func(l iface.State) bool { return l.Index == r.Index }) {
		return r
	}
	return paths.Elsewhere(r.Interface, linkNames(links))
}

// entryWithin is within for what is known of an address.
func entryWithin(links []iface.State, e paths.Entry) paths.Entry {
	if e.Interface == "" {
		return e
	}
	if r := within(links, e.Route); r != e.Route {
		return paths.Entry{Address: e.Address, Route: r, Neighbour: e.Neighbour, Reason: r.Reason}
	}
	return e
}
