// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
)

// identities is the actuator of the set of interfaces: which are followed, which paths may use, and under which the
// process is registered. New interfaces are added before any other step, and old ones are removed after all others.
type identities struct{ *core }

func (n *identities) Plan(before, next *view.View) (apply, cleanup []steps.Step) {
	if slices.Equal(before.Config.Interfaces, next.Config.Interfaces) || len(before.Links) == 0 {
		return nil, nil
	}
	previous, now := before.Config.Interfaces, next.Config.Interfaces
	apply = []steps.Step{{
		Do:   func() error { return n.register(previous[0], now[0]) },
		Undo: func() error { return n.unregister(now[0], previous[0]) },
	}, {
		Do:   func() error { return n.setInterfaces(now) },
		Undo: func() error { return n.setInterfaces(previous) },
	}}
	cleanup = []steps.Step{
		{Do: func() error { return n.opt.Paths.SetInterfaces(now) }},
		{Do: func() error { return n.unregister(previous[0], now[0]) }},
	}
	return apply, cleanup
}

// register registers the process under the new first interface, and unregister removes the previous one.
func (n *identities) register(previous, next string) error {
	if n.opt.Identity == nil || previous == next {
		return nil
	}
	return n.opt.Identity.Register(next)
}

func (n *identities) unregister(previous, next string) error {
	if n.opt.Identity == nil || previous == next {
		return nil
	}
	return n.opt.Identity.Unregister(previous)
}

// setInterfaces replaces the interfaces that are followed. Their states are those of the view until they are read
// again.
func (n *identities) setInterfaces(names []string) error {
	err := n.opt.Links.SetInterfaces(names)
	n.interfaces.MarkStale()
	n.schedule()
	return err
}
