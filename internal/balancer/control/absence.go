// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// An interface may be deleted and made anew: by hand, with a virtual machine's card, a driver that is loaded again,
// or a bond that is configured again. What was attached to it, its addresses and its settings are gone then, and the
// new one has another index. The balancer waits for it, and serves by the others meanwhile.

// indexOfLink returns where an interface is among states of before: by its index, or if it was made anew, by its
// name; -1 if it is new.
func indexOfLink(before []iface.State, now iface.State) int {
	if at := slices.IndexFunc(before, func(o iface.State) bool { return sameLink(o, now) }); at >= 0 {
		return at
	}
	return slices.IndexFunc(before, func(o iface.State) bool { return o.Name == now.Name })
}

// currentLinks are the view's interfaces as they were read last, where the view's are not others: one that was made
// anew has another index.
func (c *Controller) currentLinks() []iface.State {
	if slices.EqualFunc(c.links, c.view.links, func(a, b iface.State) bool { return a.Name == b.Name }) {
		return c.links
	}
	return c.view.links
}

// followAbsence says that an interface went or came back, and has that settled.
func (c *Controller) followAbsence(before, now iface.State) {
	about := events.About{Kind: events.KindPath}.Attr()
	switch {
	case now.Gone && before.Gone:
		return
	case now.Gone:
		c.opt.Log.Warn(goneMessage(now.Name), about)
	default:
		c.opt.Log.Info(fmt.Sprintf("interface %s is back: packets are taken there again", now.Name), about)
		c.tasks.silence.In(silence) // as where it was down
		c.remade = append(c.remade, now.Name)
	}
	c.unsettled = true
	c.miss(append(slices.Clone(c.missing), now.Name))
}

// miss says which interfaces are missing; those of other configurations are not.
func (c *Controller) miss(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = names
}

// found takes note that the data plane is attached to all interfaces that there are.
func (c *Controller) found() {
	if len(c.missing) == 0 {
		return
	}
	var still []string
	for _, l := range c.links {
		if l.Gone {
			still = append(still, l.Name)
		}
	}
	c.miss(still)
}

func goneMessage(name string) string {
	return fmt.Sprintf("interface %s was deleted: no packets by it until there is one of that name again", name)
}

// absentLink says whether an interface is gone, or what is known of its settings is of the one before.
func (c *Controller) absentLink(name string) bool {
	return slices.Contains(c.remade, name) || slices.ContainsFunc(c.links, func(l iface.State) bool { return l.Gone && l.Name == name })
}

// settleLinks does what follows from interfaces that went or came back: the host forwards on those that are there,
// paths lead by them, and the data plane is attached to them. What fails is tried again.
func (c *Controller) settleLinks() error {
	if !c.unsettled || c.view == nil || len(c.view.links) == 0 {
		return nil
	}
	c.stale, c.relearn = true, true
	c.paths.MarkStale()
	// What was set of the interface that is gone is given up first: the new one has settings of its own.
	err := c.forward(c.view)
	if remade := c.remade; len(remade) > 0 && err == nil {
		c.remade = nil
		if err = c.forward(c.view); err != nil {
			c.remade = remade
		}
	}
	err = errors.Join(err, c.opt.Paths.Use(c.view.cfg.Interfaces))
	c.unsettled = err != nil
	return err
}
