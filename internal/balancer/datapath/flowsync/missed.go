// SPDX-License-Identifier: Apache-2.0

package flowsync

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/picture"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// A flow is sent once, and seldom again. One that was refused for a reason that a change here may end, such as a
// backend that the other balancer already has by a reload which is yet to come here, would be unknown when its packets
// come. So the backends of such flows are noted, and when a change has brought one, others are asked to send their
// flows again.

// missed has the backends of flows that were refused so.
type missed struct {
	of map[lb.BackendKey]struct{}
	// lastPicture is the last picture that was compared.
	lastPicture *picture.Picture
}

// maxMissed bounds the recorded backends. Flows of further ones are sent again when others are.
const maxMissed = 4096

// note notes the backend of a refused flow, and reports whether the flow was refused for such a reason.
func (m *missed) note(r *generation.Register, f *lb.Flow, reason string) bool {
	if reason != RefusedUnknown && reason != RefusedComputed || r.AcceptsFlows(f.Backend) {
		return false
	}
	if m.of == nil {
		m.of = map[lb.BackendKey]struct{}{}
	}
	if len(m.of) < maxMissed {
		m.of[f.Backend] = struct{}{}
	}
	return true
}

// RetryMissed reports whether flows that MergeFlows has counted as missed would be taken by now; then others are to
// send these again, and they do not count as missed any more. It does not wait for a change under way, and costs
// nothing while nothing has changed. Errors: ErrClosed.
func (e *Exchange) RetryMissed() (retry bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	err = e.published.Read(func(p *picture.Picture) error {
		if len(e.missed.of) == 0 || e.missed.lastPicture == p {
			return nil
		}
		e.missed.lastPicture = p
		for _, r := range p.Records {
			if !r.LooksUpFlows() {
				continue
			}
			for _, backend := range r.Service.Backends {
				key := r.Service.BackendKey(backend)
				if _, is := e.missed.of[key]; is {
					delete(e.missed.of, key)
					retry = true
				}
			}
		}
		return nil
	})
	return retry, err
}
