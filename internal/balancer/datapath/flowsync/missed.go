// SPDX-License-Identifier: Apache-2.0

package flowsync

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// A flow is sent once, and seldom again. A flow that was refused for a reason that a change here may remove, such as a
// backend that the other balancer has by a reload which is yet to come here, would be unknown when its packets arrive.
// So the backends of such flows are noted, and when a change has added one, others are requested to send their flows
// again.

// missed has the backends of such flows.
type missed struct {
	backends map[lb.BackendKey]struct{}
	// lastView is the last view that was compared.
	lastView *readview.View
}

// maxMissed bounds the recorded backends. Flows of further backends are sent again with those of recorded ones.
const maxMissed = 4096

// note records the backend of a refused flow, and reports whether a change may remove the reason.
func (m *missed) note(r *generation.Register, f *lb.Flow, reason string) bool {
	if reason != RefusedUnknown && reason != RefusedComputed || r.AcceptsFlows(f.Backend) {
		return false
	}
	if m.backends == nil {
		m.backends = map[lb.BackendKey]struct{}{}
	}
	if len(m.backends) < maxMissed {
		m.backends[f.Backend] = struct{}{}
	}
	return true
}

// RetryMissed reports whether flows that MergeFlows has counted as missed would be accepted by now; then others are to
// send them again, and they no longer count as missed. It does not wait for a change under way, and returns at once
// while nothing has changed. Errors: ErrClosed.
func (e *Exchange) RetryMissed() (retry bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	err = e.published.Read(func(p *readview.View) error {
		if len(e.missed.backends) == 0 || e.missed.lastView == p {
			return nil
		}
		e.missed.lastView = p
		for _, r := range p.Records {
			if !r.LooksUpFlows() {
				continue
			}
			for _, backend := range r.Service.Backends {
				key := r.Service.BackendKey(backend)
				if _, ok := e.missed.backends[key]; ok {
					delete(e.missed.backends, key)
					retry = true
				}
			}
		}
		return nil
	})
	return retry, err
}
