// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// fullShare is the share of entries from which a table counts as full.
const fullShare = 0.95

func checkConntrack(e *evidence.Evidence) (findings []Finding) {
	before, after := e.Before.Conntrack, e.After.Conntrack
	if before == nil || after == nil {
		return nil
	}
	entries := Figure{Name: "nf_conntrack_count", Value: float64(after.Entries), Unit: "connections",
		Of: float64(after.Limit)}
	drop := Figure{Name: "conntrack drop", Value: float64(evidence.Growth(after.Drop, before.Drop)), Unit: "packets"}
	early := Figure{Name: "conntrack early_drop", Value: float64(evidence.Growth(after.EarlyDrop, before.EarlyDrop)),
		Unit: "connections"}
	insert := Figure{Name: "conntrack insert_failed", Value: float64(evidence.Growth(after.InsertFailed, before.InsertFailed)),
		Unit: "packets"}
	full := after.Limit > 0 && float64(after.Entries) >= fullShare*float64(after.Limit)
	switch {
	case full || early.Value > 0:
		findings = append(findings,
			finding(conntrackFull, fmt.Sprintf("The table of tracked connections is full: %d of %d", after.Entries,
				after.Limit),
				append([]Figure{entries}, nonZero(drop, early)...)...))
	case drop.Value > 0 || insert.Value >= fewPackets:
		findings = append(findings, finding(conntrackInsert, "Connection tracking loses packets of new connections",
			nonZero(drop, insert)...))
	}
	return findings
}
