// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// tellReaddressed logs which names of backends have another address or port than in the view before or, of those
// that are discovered, than when they were found last: flows that are remembered stay with the address, and operations
// with the name.
func (c *Controller) tellReaddressed(before *view, kind events.Kind) {
	lines := tale{log: c.opt.Log.Info}
	for i := range c.view.cfg.Services {
		s := &c.view.cfg.Services[i]
		if before.holdsBackends(s) {
			continue
		}
		former := before.addressesIn(s.Name)
		for _, b := range s.Backends {
			name := nameOf(*s, b)
			was, known := former[b.Name]
			if a := c.absentees[name]; !known && a != nil && !a.lapsed(time.Now()) {
				was, known = addressText(*s, a.was), true
			}
			if is := addressText(*s, b); known && was != is {
				about := events.About{Kind: kind, Service: s.Name, Backend: b.Name}
				lines.say(about, "%s has another address: %s → %s%s", name, was, is, c.view.stays(*s, b))
			}
		}
	}
	lines.end("%d more backends have another address")
}

// addressesIn returns where the backends of a service are, by their names.
func (v *view) addressesIn(service string) map[string]string {
	i, there := v.named[service]
	if !there {
		return nil
	}
	s := v.cfg.Services[i]
	all := make(map[string]string, len(s.Backends))
	for _, b := range s.Backends {
		all[b.Name] = addressText(s, b)
	}
	return all
}

// stays says which operations stay with a backend; empty: there are none.
func (v *view) stays(s lb.Service, b lb.Backend) string {
	if held := v.overlayOf(s, b).heldText(); held != "" {
		return fmt.Sprintf("; it stays %s", held)
	}
	return ""
}
