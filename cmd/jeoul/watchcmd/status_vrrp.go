// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"fmt"
	"io"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// writeVRRP prints how balancers of the segment share the VIPs.
func writeVRRP(w io.Writer, v *ops.VRRP) {
	if v == nil {
		return
	}
	priority := fmt.Sprint(v.Priority)
	if v.Priority != v.ConfiguredPriority {
		priority += fmt.Sprintf(" of %d", v.ConfiguredPriority)
	}
	fmt.Fprintf(w, "\nVRRP %d on %s: %s, priority %s, each %s%s: %s\n", v.ID, v.Interface, v.State, priority,
		cmdkit.SecondsText(v.IntervalSeconds), cmdkit.SinceText(v.Since), v.Why)
	if d := v.Drained; d != nil {
		fmt.Fprintf(w, "  drained by %s at %s\n", d.By, d.At.Local().Format(time.DateTime))
	}
	if p := v.Peer; p != nil {
		says := fmt.Sprintf("priority %d, each %s", p.Priority, cmdkit.SecondsText(p.IntervalSeconds))
		if p.Priority == 0 {
			says = "it leaves"
		}
		fmt.Fprintf(w, "  heard %s at %s: %s\n", p.Address, p.Heard.Local().Format(time.TimeOnly), says)
	}
	for _, f := range v.Foreign {
		at := f.Heard.Local().Format(time.TimeOnly)
		fmt.Fprintf(w, "  ignored %s at %s: the same id, other VIPs: %v\n", f.Address, at, f.VIPs)
	}
	if v.Both {
		fmt.Fprintln(w, "  two balancers are active")
	}
}
