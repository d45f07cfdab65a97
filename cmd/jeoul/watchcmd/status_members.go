// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// handoverText counts the flows that are handed over.
func handoverText(f *ops.MemberFlows) string {
	switch {
	case f == nil:
		return ""
	case !f.Sending:
		return "is sent no flows: " + cmp.Or(f.Reason, "it is being connected to")
	case f.Behind > 0:
		return fmt.Sprintf("%d flows behind", f.Behind)
	}
	return ""
}

// writeMembers lists the other balancers, and the services that they balance differently.
func writeMembers(w io.Writer, all *ops.Members) {
	if all == nil {
		return
	}
	fmt.Fprintf(w, "\nMember %s, listening on %s\n", all.Name, all.Address)
	for _, m := range all.Members {
		fmt.Fprintf(w, "  %s %s: %s since %s", cmdkit.OrDash(m.Name), m.Address, m.State,
			m.Since.Local().Format(time.DateTime))
		for _, part := range []string{m.Reason, differing(m), handoverText(m.Flows)} {
			if part != "" {
				fmt.Fprintf(w, ", %s", part)
			}
		}
		fmt.Fprintln(w)
	}
}

func differing(m ops.Member) string {
	if len(m.Differs) == 0 {
		return ""
	}
	return "sends new flows elsewhere: " + differsText(m)
}
