// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// LookOften has Watch look more often than it does for users.
func (a *Agent) LookOften() {
	a.pace = pace{settle: time.Millisecond, apart: 5 * time.Millisecond, every: 20 * time.Millisecond}
}
