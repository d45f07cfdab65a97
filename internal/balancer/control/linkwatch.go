// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/control/vips"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// An interface may be deleted and made anew: by hand, with a virtual machine's card, a driver that is loaded again, or
// a bond that is configured again. Its programs, addresses and settings are gone then, and the new one has another
// index. The balancer waits for it, and serves by the others meanwhile.

// linkWatch follows the interfaces, and has the host forward on them.
type linkWatch struct {
	*core
	pathLog *pathLog
	vips    *vips.VIPs
	// unsettled: an interface went or came back, and not all that follows from that is done.
	unsettled bool
}

// indexOfLink returns where an interface is among states of before: by its index, or if it was made anew, by its
// name; -1 if it is new.
func indexOfLink(before []iface.State, now iface.State) int {
	if at := slices.IndexFunc(before, func(o iface.State) bool { return view.SameLink(o, now) }); at >= 0 {
		return at
	}
	return slices.IndexFunc(before, func(o iface.State) bool { return o.Name == now.Name })
}

// followGone says that an interface went or came back, and has that settled.
func (w *linkWatch) followGone(before, now iface.State) {
	about := events.About{Kind: events.KindPath}.Attr()
	switch {
	case now.Gone && before.Gone:
		return
	case now.Gone:
		w.opt.Log.Warn(goneMessage(now.Name), about)
	default:
		w.opt.Log.Info(fmt.Sprintf("interface %s is back: packets are taken there again", now.Name), about)
		w.pathLog.silenceTask.In(pathLogDelay) // as where it was down
		w.remade = append(w.remade, now.Name)
	}
	w.unsettled = true
	w.miss(append(slices.Clone(w.missing), now.Name))
}

// miss says which interfaces are missing; those of other configurations are not.
func (w *linkWatch) miss(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing = names
}

func goneMessage(name string) string {
	return fmt.Sprintf("interface %s was deleted: no packets by it until there is one of that name again", name)
}

// settleLinks adapts to interfaces that went or came back: the host forwards on those that are there, paths lead by
// them, and the data plane is attached to them. A failed step is tried again.
func (w *linkWatch) settleLinks() error {
	if !w.unsettled || w.view == nil || len(w.view.Links) == 0 {
		return nil
	}
	w.stale, w.relearn = true, true
	w.paths.MarkStale()
	// The settings of the deleted interface are given up first: the new one has settings of its own.
	err := w.forward(w.view)
	if remade := w.remade; len(remade) > 0 && err == nil {
		w.remade = nil
		if err = w.forward(w.view); err != nil {
			w.remade = remade
		}
	}
	err = errors.Join(err, w.opt.Paths.Use(w.view.Config.Interfaces))
	w.unsettled = err != nil
	return err
}

// settings are the host's settings: it forwards the packets that the services need, and no others.
type settings struct{ linkWatch *linkWatch }

func (h *settings) Change(before, next *view.View) (bring, retire []steps.Step) {
	if before.Layout == next.Layout {
		return nil, nil
	}
	return []steps.Step{{
			Do:   func() error { return h.linkWatch.forward(before, next) },
			Undo: func() error { return h.linkWatch.forward(before) },
		}}, []steps.Step{{
			Do: func() error { return h.linkWatch.forward(next) },
		}}
}

// takeLinks reads the interfaces' states.
func (w *linkWatch) takeLinks() error {
	states, err := w.opt.Links.States()
	if err != nil {
		return err
	}
	before := w.links
	w.setLinks(states)
	for _, now := range states {
		if at := indexOfLink(before, now); at >= 0 {
			w.followLink(before[at], now)
		}
	}
	w.vips.Follow(states[0])
	return w.settleLinks()
}

// followLink logs a change of an interface.
func (w *linkWatch) followLink(before, now iface.State) {
	switch {
	case now.Gone || before.Gone || !view.SameLink(before, now):
		w.followGone(before, now)
		return
	case before.Up && !now.Up:
		w.opt.Log.Warn(downMessage(now.Name))
	case !before.Up && now.Up:
		w.opt.Log.Info(fmt.Sprintf("interface %s is up", now.Name))
		w.pathLog.silenceTask.In(pathLogDelay) // a backend that is silent now has no excuse
	}
	if view.HasMoved(before, now) {
		w.opt.Log.Info(fmt.Sprintf("interface %s has a new MAC address: %s → %s", now.Name, before.MAC, now.MAC))
		w.stale = true // the data plane holds the old one
	}
	if !slices.Equal(before.Subnets, now.Subnets) {
		w.stale = true // who is near may be another
	}
}

// logDown says which interfaces are down that were not there before.
func (w *linkWatch) logDown(before []iface.State) {
	for _, link := range w.links {
		if !link.Up && !link.Gone && !slices.ContainsFunc(before, func(o iface.State) bool {
			return view.SameLink(o, link)
		}) {
			w.opt.Log.Warn(downMessage(link.Name))
		}
	}
}

func downMessage(name string) string {
	return fmt.Sprintf("interface %s is down: no packets until it is up", name)
}

// forward makes the host forward the packets that the views' services need, on their interfaces, and no others. The
// VIPs are on the first one's first.
func (w *linkWatch) forward(views ...*view.View) error {
	var four, six bool
	var names []string
	for _, v := range views {
		for _, name := range view.LinkNames(v.Links) {
			if !slices.Contains(names, name) && !w.linkIsGone(name) {
				names = append(names, name)
			}
		}
		for _, s := range v.Config.Services {
			four = four || s.Mode.Translates() && s.VIP.Is4()
			six = six || s.Mode.Translates() && s.VIP.Is6()
		}
	}
	err := w.opt.Host.Forward(names, four, six)
	w.logHost()
	return err
}
