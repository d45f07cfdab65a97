// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net/netip"
	"time"
)

// Began is when the engine's time begins.
func (e *Engine) Began() time.Time { return e.began }

// Phases returns when each address is first due, counted from Began; then it is at each interval.
func (e *Engine) Phases() map[netip.Addr]time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	phases := make(map[netip.Addr]time.Duration, len(e.targets))
	for _, t := range e.targets {
		phases[t.endpoint().Address] = t.slot(0)
	}
	return phases
}
