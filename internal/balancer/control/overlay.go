// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// overlay is what operations have laid over a backend of the configuration. What
// its parts point to is never changed, for earlier overlays share it.
type overlay struct {
	drain  *ops.Drained  // nil: as the file says
	weight *ops.Weighted // nil: likewise
	forced *ops.Forced   // nil: as health checks say
	// absent: the backend was discovered, and is not any more; nil: the configuration has it.
	absent *absence
}

func (o overlay) empty() bool { return o.drain == nil && o.weight == nil && o.forced == nil }

// out says whether the backend is out of its service: disabled, or its deadline has passed.
func (o overlay) out() bool { return o.drain != nil && o.drain.Out }

// over returns a backend of the configuration as the operations have it.
func (o overlay) over(b lb.Backend) lb.Backend {
	if o.drain != nil {
		b.Draining = o.drain.On
	}
	if o.weight != nil {
		b.Weight = o.weight.Value
	}
	return b
}

// due says whether the backend is to be taken out of its service by now.
func (o overlay) due(now time.Time) bool {
	return o.drain != nil && o.drain.On && !o.drain.Out && !o.drain.Deadline.IsZero() && !o.drain.Deadline.After(now)
}

// lay puts an overlay among others, or takes the one of its name away.
func lay(overlays map[backendName]overlay, name backendName, o overlay) {
	if o.empty() {
		delete(overlays, name)
		return
	}
	overlays[name] = o
}

// takers counts the backends of service i that may take new flows, and those of
// them that are up; where failing ones are used for want of others, they are not.
func (v *view) takers(i int) (may, up int) {
	s := v.state.Services[i]
	for j, b := range s.Backends {
		if b.TakesFlows() {
			may++
			if reached(s.Service, s.Paths[j]) {
				up++
			}
		}
	}
	if v.selected[i].serving == panicked {
		up = v.selected[i].healthy
	}
	return may, up
}

// lets says whether the operations let a backend of service i take new flows.
func (v *view) lets(i int) bool {
	s := v.cfg.Services[i]
	return slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
		o := v.overlayOf(s, b)
		return !o.out() && o.over(b).TakesFlows()
	})
}
