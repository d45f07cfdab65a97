// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"fmt"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// differsText names the services that a member balances differently.
func differsText(m ops.Member) string {
	switch len(m.Differs) {
	case 0:
		return ""
	case 1:
		return m.Differs[0].Service
	}
	return fmt.Sprintf("%s and %d more", m.Differs[0].Service, len(m.Differs)-1)
}

// activeText counts the flows that have not ended, with the upper limit if there is one.
func activeText(b ops.Backend) any {
	if b.Upper == 0 {
		return cmdkit.Count(uint64(b.Active))
	}
	return cmdkit.Count(uint64(b.Active)) + "/" + cmdkit.Count(uint64(b.Upper))
}
