// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"time"

	"github.com/vishvananda/netlink"
)

// LookOften makes Watch check more often than for users.
func (a *Agent) LookOften() {
	a.pace = pace{settle: time.Millisecond, apart: 5 * time.Millisecond, every: 20 * time.Millisecond}
}

// KeepPrograms is a pass over the programs with a list of interfaces that may be older than the interfaces.
func (a *Agent) KeepPrograms(links []netlink.Link, log *slog.Logger) (problems []error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ns.Do(func() error {
		problems = a.keepPrograms(links, log)
		return nil
	}); err != nil {
		problems = append(problems, err)
	}
	return problems
}
