// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
)

// identities are the interfaces that the balancer works on: which ones are watched, where paths lead, and by which
// names the process is known. New ones are there before anything else is brought, and old ones go after everything else
// is retired.
type identities struct{ *core }

func (n *identities) Change(before, next *view.View) (bring, retire []steps.Step) {
	if slices.Equal(before.Config.Interfaces, next.Config.Interfaces) || len(before.Links) == 0 {
		return nil, nil
	}
	old, now := before.Config.Interfaces, next.Config.Interfaces
	bring = []steps.Step{{
		Do:   func() error { return n.take(old[0], now[0]) },
		Undo: func() error { return n.release(now[0], old[0]) },
	}, {
		Do:   func() error { return n.follow(now) },
		Undo: func() error { return n.follow(old) },
	}}
	retire = []steps.Step{
		{Do: func() error { return n.opt.Paths.Use(now) }},
		{Do: func() error { return n.release(old[0], now[0]) }},
	}
	return bring, retire
}

// take has the process known by the interface that is to be the first, and release by that one
// no more which is not.
func (n *identities) take(was, is string) error {
	if n.opt.Identity == nil || was == is {
		return nil
	}
	return n.opt.Identity.Take(is)
}

func (n *identities) release(was, is string) error {
	if n.opt.Identity == nil || was == is {
		return nil
	}
	return n.opt.Identity.Release(was)
}

// follow watches interfaces. Their states are those of the view until they are read again.
func (n *identities) follow(names []string) error {
	err := n.opt.Links.SetNames(names)
	n.interfaces.MarkStale()
	n.schedule()
	return err
}
