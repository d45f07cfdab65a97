// SPDX-License-Identifier: Apache-2.0

package flowsync

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Bases returns the tables from which services in a transition started, for balancers that have not seen its beginning.
// It does not wait for a change under way. Errors: ErrClosed.
func (e *Exchange) Bases() (bases []lb.Base, err error) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	err = e.published.Read(func(p *readview.View) error {
		// Records do not change, and comparing tables takes time: so the base of each is computed once.
		current := map[*generation.Record]lb.Base{}
		for _, r := range p.Records {
			if !r.View.InTransition() || r.Service.IsHairpin || len(r.View.Table.Slots) == 0 {
				continue
			}
			b, known := e.bases[r]
			if !known {
				b = r.Base()
			}
			current[r] = b
			b.Age, b.Left = max(now.Sub(r.View.Since), 0), max(r.View.Until.Sub(now), 0)
			bases = append(bases, b)
		}
		e.bases = current
		return nil
	})
	return bases, err
}
