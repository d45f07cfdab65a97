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

// An interface may be deleted and created again: by hand, with a virtual machine's card, a driver that is reloaded, or
// a bond that is reconfigured. Its programs, addresses and settings are lost then, and the new interface has another
// index. The balancer waits for it, and goes on serving through its other interfaces.

// linkWatch follows the interfaces, and keeps forwarding enabled on them.
type linkWatch struct {
	*core
	pathLog *pathLog
	vips    *vips.VIPs
	// incomplete: an interface was deleted or created again, and reconcileLinks has not succeeded since.
	incomplete bool
}

// indexOfLink returns the position of an interface among previous states: by its index, or by its name if it was
// created again; -1 if it is new.
func indexOfLink(before []iface.State, now iface.State) int {
	if at := slices.IndexFunc(before, func(o iface.State) bool { return view.SameLink(o, now) }); at >= 0 {
		return at
	}
	return slices.IndexFunc(before, func(o iface.State) bool { return o.Name == now.Name })
}

// handleGone logs that an interface was deleted or created again, and marks the links for reconciliation.
func (w *linkWatch) handleGone(before, now iface.State) {
	about := events.About{Kind: events.KindPath}.Attr()
	switch {
	case now.Gone && before.Gone:
		return
	case now.Gone:
		w.opt.Log.Warn(goneMessage(now.Name), about)
	default:
		w.opt.Log.Info(fmt.Sprintf("interface %s is back: packets are taken there again", now.Name), about)
		w.pathLog.silenceTask.Schedule(pathLogDelay) // as after it was down
		w.recreated = append(w.recreated, now.Name)
	}
	w.incomplete = true
	w.setMissing(append(slices.Clone(w.missing), now.Name))
}

// setMissing sets which interfaces are missing.
func (w *linkWatch) setMissing(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing = names
}

func goneMessage(name string) string {
	return fmt.Sprintf("interface %s was deleted: no packets by it until there is one of that name again", name)
}

// reconcileLinks adapts to interfaces that were deleted or created again: it enables forwarding on those that exist,
// lets paths use them, and makes the data plane attach to them. A step that fails is retried.
func (w *linkWatch) reconcileLinks() error {
	if !w.incomplete || w.view == nil || len(w.view.Links) == 0 {
		return nil
	}
	w.stale, w.rereadPaths = true, true
	w.paths.MarkStale()
	// First, drop the settings of the deleted interface: the new one has its own.
	err := w.forward(w.view)
	if pending := w.recreated; len(pending) > 0 && err == nil {
		w.recreated = nil
		if err = w.forward(w.view); err != nil {
			w.recreated = pending
		}
	}
	err = errors.Join(err, w.opt.Paths.SetInterfaces(w.view.Config.Interfaces))
	w.incomplete = err != nil
	return err
}

// settings is the actuator of the host's forwarding: it is enabled where services need it, and nowhere else.
type settings struct{ linkWatch *linkWatch }

func (h *settings) Plan(before, next *view.View) (apply, cleanup []steps.Step) {
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

// readLinks reads the interfaces' states.
func (w *linkWatch) readLinks() error {
	states, err := w.opt.Links.States()
	if err != nil {
		return err
	}
	before := w.links
	w.setLinks(states)
	for _, now := range states {
		if at := indexOfLink(before, now); at >= 0 {
			w.handleLink(before[at], now)
		}
	}
	w.vips.SetLink(states[0])
	return w.reconcileLinks()
}

// handleLink logs a change of an interface.
func (w *linkWatch) handleLink(before, now iface.State) {
	switch {
	case now.Gone || before.Gone || !view.SameLink(before, now):
		w.handleGone(before, now)
		return
	case before.Up && !now.Up:
		w.opt.Log.Warn(downMessage(now.Name))
	case !before.Up && now.Up:
		w.opt.Log.Info(fmt.Sprintf("interface %s is up", now.Name))
		w.pathLog.silenceTask.Schedule(pathLogDelay) // from now on, missing paths are logged
	}
	if view.HasMoved(before, now) {
		w.opt.Log.Info(fmt.Sprintf("interface %s has a new MAC address: %s → %s", now.Name, before.MAC, now.MAC))
		w.stale = true // the data plane holds the old one
	}
	if !slices.Equal(before.Subnets, now.Subnets) {
		w.stale = true // the set of near clients may have changed
	}
}

// logDown logs which of the new interfaces are down.
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

// forward enables forwarding on the views' interfaces for the families that their services need, and nowhere else. The
// first interface of the first view carries the VIPs.
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
	err := w.opt.Host.EnableForwarding(names, four, six)
	w.logHost()
	return err
}
