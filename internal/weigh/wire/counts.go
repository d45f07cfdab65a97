// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"sync/atomic"
)

// totals are the values of the counters at a moment.
type totals struct {
	clients, servers []bpfWireCounts
	progress         bpfWireProgress
}

// counts reads the counters of all ports.
func (t *Tester) counts() (totals, error) {
	var all totals
	for i := range t.clients {
		c, err := t.row(i)
		if err != nil {
			return all, err
		}
		all.clients = append(all.clients, c)
	}
	for i := range t.servers {
		c, err := t.row(MaxPorts + i)
		if err != nil {
			return all, err
		}
		all.servers = append(all.servers, c)
	}
	all.progress = t.senderProgress()
	return all, nil
}

// row sums up a port's counters over all CPUs.
func (t *Tester) row(row int) (sum bpfWireCounts, err error) {
	var each []bpfWireCounts
	if err := t.maps[mapCounts].Lookup(uint32(row), &each); err != nil {
		return sum, fmt.Errorf("reading a port's counts: %w", err)
	}
	for _, one := range each {
		for i, n := range one.Count {
			sum.Count[i] += n
		}
	}
	return sum, nil
}

// senderProgress reads the sender's progress.
func (t *Tester) senderProgress() bpfWireProgress {
	p := t.progress
	return bpfWireProgress{
		Opened: atomic.LoadUint64(&p.Opened), Followed: atomic.LoadUint64(&p.Followed),
		Flooded: atomic.LoadUint64(&p.Flooded),
		Sent:    atomic.LoadUint64(&p.Sent), Retransmitted: atomic.LoadUint64(&p.Retransmitted),
		Reset:    atomic.LoadUint64(&p.Reset),
		NoAnswer: atomic.LoadUint64(&p.NoAnswer), Checksum: atomic.LoadUint64(&p.Checksum),
		Behind: atomic.LoadUint64(&p.Behind),
		Began:  atomic.LoadUint64(&p.Began), Ended: atomic.LoadUint64(&p.Ended),
		FollowId:  atomic.LoadUint32(&p.FollowId),
		Requested: atomic.LoadUint64(&p.Requested), Finished: atomic.LoadUint64(&p.Finished),
	}
}

// since returns the counts since an earlier moment.
func (n totals) since(then totals) totals {
	d := totals{clients: minus(n.clients, then.clients), servers: minus(n.servers, then.servers), progress: n.progress}
	p := &d.progress
	p.Opened -= then.progress.Opened
	p.Flooded -= then.progress.Flooded
	p.Sent -= then.progress.Sent
	p.Retransmitted -= then.progress.Retransmitted
	p.Reset -= then.progress.Reset
	p.NoAnswer -= then.progress.NoAnswer
	p.Checksum -= then.progress.Checksum
	p.Requested -= then.progress.Requested
	p.Finished -= then.progress.Finished
	return d
}

func minus(a, b []bpfWireCounts) []bpfWireCounts {
	d := make([]bpfWireCounts, len(a))
	for i := range a {
		for k := range a[i].Count {
			d[i].Count[k] = a[i].Count[k] - b[i].Count[k]
		}
	}
	return d
}

func sum(ports []bpfWireCounts, what bpfWireCount) (n uint64) {
	for _, p := range ports {
		n += p.Count[what]
	}
	return n
}

// client and server sum up a counter over the ports of a side.
func (n totals) client(what bpfWireCount) uint64 { return sum(n.clients, what) }
func (n totals) server(what bpfWireCount) uint64 { return sum(n.servers, what) }

// abandoned returns the number of connections that were given up.
func (n totals) abandoned() uint64 { return n.progress.NoAnswer + n.progress.Checksum }

// refused returns the number of connections that failed by an answer: a reset, or a packet of another backend.
func (n totals) refused() uint64 {
	return n.client(bpfWireCountWIRE_COUNT_FAILED_RESET) + n.client(bpfWireCountWIRE_COUNT_FAILED_WRONG_BACKEND)
}

// agreed reports whether servers have counted each connection that clients have established.
func (n totals) agreed() bool {
	return n.server(bpfWireCountWIRE_COUNT_ESTABLISHED) >= n.client(bpfWireCountWIRE_COUNT_ESTABLISHED)
}
