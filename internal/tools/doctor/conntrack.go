// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/prometheus/procfs"
)

// Conntrack is the kernel's table of connections, of this network namespace.
type Conntrack struct {
	Entries uint64 `json:"entries"`
	// Limit is the whole machine's, and holds for each namespace by itself.
	Limit uint64 `json:"limit"`
	// Drop are packets for which there was no room or no memory, EarlyDrop
	// connections that were forgotten to make some, InsertFailed those that another
	// was quicker than.
	Drop         uint64 `json:"drop"`
	EarlyDrop    uint64 `json:"early_drop"`
	InsertFailed uint64 `json:"insert_failed"`
}

// readConntrack returns nil where the kernel tracks no connections.
func readConntrack() (*Conntrack, error) {
	var c Conntrack
	var err error
	if c.Limit, err = readNumber("net.netfilter.nf_conntrack_max"); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if c.Entries, err = readNumber("net.netfilter.nf_conntrack_count"); err != nil {
		return nil, err
	}
	// Below thread-self, /proc/net is the calling thread's.
	own, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return nil, err
	}
	cores, err := own.ConntrackStat()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, core := range cores {
		c.Drop += core.Drop
		c.EarlyDrop += core.EarlyDrop
		c.InsertFailed += core.InsertFailed
	}
	return &c, nil
}

// fullShare is from where on a table counts as full, and nearlyFull as nearly so.
const fullShare = 0.95

func judgeConntrack(e *Evidence) (findings []Finding) {
	before, after := e.Before.Conntrack, e.After.Conntrack
	if before == nil || after == nil {
		return nil
	}
	entries := Figure{Name: "nf_conntrack_count", Value: float64(after.Entries), Unit: "connections",
		Of: float64(after.Limit)}
	drop := Figure{Name: "conntrack drop", Value: float64(less(after.Drop, before.Drop)), Unit: "packets"}
	early := Figure{Name: "conntrack early_drop", Value: float64(less(after.EarlyDrop, before.EarlyDrop)),
		Unit: "connections"}
	insert := Figure{Name: "conntrack insert_failed", Value: float64(less(after.InsertFailed, before.InsertFailed)),
		Unit: "packets"}
	full := after.Limit > 0 && float64(after.Entries) >= fullShare*float64(after.Limit)
	switch {
	case full || early.Value > 0:
		findings = append(findings,
			finding(conntrackFull, fmt.Sprintf("The table of tracked connections is full: %d of %d", after.Entries,
				after.Limit),
				append([]Figure{entries}, seen(drop, early)...)...))
	case drop.Value > 0 || insert.Value >= fewPackets:
		findings = append(findings, finding(conntrackInsert, "Connection tracking loses packets of new connections",
			seen(drop, insert)...))
	}
	return findings
}
