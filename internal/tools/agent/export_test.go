// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// LookOften makes Watch check more often than for users.
func (a *Agent) LookOften() {
	a.pace = pace{settle: time.Millisecond, apart: 5 * time.Millisecond, every: 20 * time.Millisecond}
}
