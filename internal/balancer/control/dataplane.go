// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// plane is the data plane. It comes last of what is brought: what is before it may fail, and
// then it was not touched.
type plane struct{ *core }

func (p *plane) change(before, next *view) (bring, retire []steps.Step) {
	return []steps.Step{{Do: func() error {
		next.hairpin = p.hairpins(next)
		next.state.Hairpin = next.hairpin.Hairpin
		next.state.Fresh = before.joining != "" && !p.opt.TakesOver && next.leavesAll()
		if !p.stale && next.sharesState(before) {
			p.show(next)
			return nil
		}
		return tooLarge(next.cfg, p.install(next))
	}}}, nil
}

// hairpins returns the clients that the next view serves by hairpins.
func (p *plane) hairpins(next *view) hairpins {
	if len(next.hairpinned) == 0 {
		return hairpins{}
	}
	links := slices.Clone(next.links)
	for i := range links {
		if at := slices.IndexFunc(p.links, func(l iface.State) bool { return sameLink(l, links[i]) }); at >= 0 {
			links[i] = p.links[at]
		}
	}
	ports, err := p.opt.Host.Sysctl(portRange)
	if err != nil {
		ports = err.Error()
	}
	if p.view.hairpin.isOf(p.view, next, links, ports) {
		return p.view.hairpin
	}
	return hairpinsOf(next, links, ports)
}
