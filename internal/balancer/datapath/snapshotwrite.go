// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// writeSnapshot writes the snapshot of the state after a change, before packets can read the first word of the change.
// ports are the interfaces after the change. A failure is recorded as a fault, and does not prevent the change.
func (d *Datapath) writeSnapshot(c *generation.Revision, ports []attach.Port) {
	k := d.keeper
	if k == nil {
		return
	}
	_ = d.repin() // a failure is recorded, and retried
	data, lines, err := d.buildSnapshot(c, ports)
	k.Number++
	if err != nil {
		k.NoteWriteError(err, false)
		return
	}
	k.Write(k.Number, data)
	k.Lines = lines
}

// buildSnapshot returns the next snapshot, and the encoded services in it.
func (d *Datapath) buildSnapshot(c *generation.Revision, ports []attach.Port) (
	snapshot.Parts, map[*generation.Record][]byte, error,
) {
	k := d.keeper
	lines, encoded := make(map[*generation.Record][]byte, len(c.Records)), make([][]byte, len(c.Records))
	for i, r := range c.Records {
		line, known := k.Lines[r]
		if !known {
			var err error
			if line, err = r.Saved().Line(); err != nil {
				return nil, nil, err
			}
		}
		lines[r], encoded[i] = line, line
	}
	head, err := d.buildSnapshotHead(c, ports)
	if err != nil {
		return nil, nil, err
	}
	data, err := snapshot.Encode(head, encoded)
	return data, lines, err
}

// buildSnapshotHead returns the head of a snapshot: all that does not belong to a single service.
func (d *Datapath) buildSnapshotHead(c *generation.Revision, ports []attach.Port) (snapshot.Head, error) {
	head := c.Places.Saved()
	head.Pool = c.Numbers().Saved()
	head.Number, head.Written = d.keeper.Number+1, time.Now()
	head.Secret, head.Cookie, head.Hook = d.secret, d.keeper.Cookie, d.requestedHook(c.State)
	// Of maps that the change replaces, these are the counts so far: the rest is written down after the change
	// (noteLedger).
	carried, outcomes, err := d.ledger.Counted()
	if err != nil {
		return head, err
	}
	head.Before, head.Carried, head.CountedOutcomes = savedCounts(d.ledger.NextBaselines(d.shared, c.Places)),
		savedCounts(carried), outcomes
	if head.Layouts, err = sharedmaps.SharedLayouts(); err != nil {
		return head, err
	}
	if head.Flows, err = flowtable.Layout(); err != nil {
		return head, err
	}
	if head.Elements, err = sharedmaps.ElementLayouts(); err != nil {
		return head, err
	}
	if head.Outcomes, err = sharedmaps.OutcomeNames(); err != nil {
		return head, err
	}
	head.Interfaces, head.Leaving = savedPorts(ports), savedPorts(d.removedPorts(ports))
	for _, f := range d.tags.Disabled {
		head.Shown = append(head.Shown, snapshot.Feature{Link: f.Link, Name: f.Name})
	}
	return head, nil
}

func savedPorts(ports []attach.Port) (saved []snapshot.Interface) {
	for _, p := range ports {
		saved = append(saved, snapshot.Interface{Name: p.Name, Index: p.Index})
	}
	return saved
}

func savedCounts(counts map[uint32]lb.BackendCount) []snapshot.Count {
	saved := make([]snapshot.Count, 0, len(counts))
	for _, index := range slices.Sorted(maps.Keys(counts)) {
		c := counts[index]
		saved = append(saved, snapshot.Count{Index: index, Packets: c.Packets, Bytes: c.Bytes,
			Connections:     c.Connections,
			ReturnedPackets: c.ReturnedPackets, ReturnedBytes: c.ReturnedBytes,
			Answered: c.Answered, Refused: c.Refused, Unreachable: c.Unreachable})
	}
	return saved
}
