// SPDX-License-Identifier: Apache-2.0

package flowsync

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Other balancers are notified of proven flows, so that a flow survives when its packets arrive there. A walk finds
// changes: it compares each place of the table with a word that the last walk noted for it. That costs packets nothing,
// and needs no memory where flows are not synchronised.

// Exchange has the state of the synchronisation of flows between balancers: which entries of the table of proven flows
// were sent to others, and which of theirs were refused. Its methods may be called from several goroutines, and do not
// wait for a change of the data plane under way; packets do not wait for them.
type Exchange struct {
	published *readview.Published
	janitor   *flowtable.Janitor
	now       func() time.Time

	mu sync.Mutex
	// table is the table of proven flows, and next the next bucket of the walk.
	table *flowtable.Table
	next  int
	// marks has a mark for each place, of the entry that was sent to or came from another balancer; 0 for none.
	marks []uint32
	// returns has the keys of replies to flows of full NAT, as of a view.
	returns   flowtable.ReplyKeys
	returnsAt *readview.View
	missed    missed
	// bases are the bases of services in a transition, without their times.
	bases map[*generation.Record]lb.Base
}

// New returns an exchange for the flows of the published data plane. The janitor has the clock of the flows, and now
// returns the time of services' transitions.
func New(shown *readview.Published, janitor *flowtable.Janitor, now func() time.Time) *Exchange {
	return &Exchange{published: shown, janitor: janitor, now: now}
}

// ForgetSent forgets which flows were sent, as a restart of the process does.
func ForgetSent(e *Exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table, e.bases = nil, nil
}

// flowWalk iterates over the table of proven flows, a part at a time.
type flowWalk struct {
	exchange *Exchange
	table    *flowtable.Table
	next     int
}

// SnapshotFlows returns a walk over all proven flows that another balancer needs.
func (e *Exchange) SnapshotFlows() lb.FlowWalk { return &flowWalk{exchange: e} }

// Next calls visit for the flows of at least that many further places, and reports whether they were the last ones.
// After the table was replaced, the walk begins again. Next does not wait for a change under way. Errors: ErrClosed.
func (w *flowWalk) Next(places int, visit func(*lb.Flow)) (done bool, err error) {
	gaps, clock := w.exchange.janitor.ClockGaps(), w.exchange.janitor.Now()
	err = w.exchange.published.Read(func(p *readview.View) error {
		if p.Shared == nil {
			done = true
			return nil
		}
		if w.table != p.Shared.Proven {
			w.table, w.next = p.Shared.Proven, 0
		}
		reader := p.FlowReader(clock)
		reader.Proven = true
		end := min(w.next+bucketsOf(places), len(w.table.Buckets))
		for bucket := w.next; bucket < end; bucket++ {
			w.table.EachIn(bucket, func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
				if one, wanted := toPeerFlow(reader, gaps, flow, state, seen); wanted {
					visit(&one)
				}
			})
		}
		w.next, done = end, end == len(w.table.Buckets)
		return nil
	})
	return done, err
}

// ChangedFlows calls visit for the proven flows in at least that many further places that have begun, ended, got
// another backend, or stayed active for a quarter of their timeout, since the last walk over these places; not for
// flows that MergeFlows has merged. It reports whether the walk is complete; the next call begins another. The first
// walk visits all flows. ChangedFlows does not wait for a change under way, and packets do not wait for it. Errors:
// ErrClosed.
func (e *Exchange) ChangedFlows(places int, visit func(*lb.Flow)) (done bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	gaps, clock, timeouts := e.janitor.ClockGaps(), e.janitor.Now(), e.janitor.Timeouts()
	err = e.published.Read(func(p *readview.View) error {
		if p.Shared == nil {
			done = true
			return nil
		}
		e.use(p.Shared.Proven)
		reader := p.FlowReader(clock)
		reader.Proven = true
		end := min(e.next+bucketsOf(places), len(e.table.Buckets))
		for bucket := e.next; bucket < end; bucket++ {
			e.scanBucket(bucket, timeouts, func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool {
				one, wanted := toPeerFlow(reader, gaps, flow, state, seen)
				if wanted {
					visit(&one)
				}
				return wanted
			})
		}
		if e.next, done = end, end == len(e.table.Buckets); done {
			e.next = 0
		}
		return nil
	})
	return done, err
}

// FlowPlaces returns the number of places in the table of proven flows; 0 before the first Apply.
func (e *Exchange) FlowPlaces() (places int) {
	_ = e.published.Read(func(p *readview.View) error {
		if p.Shared != nil {
			places = len(p.Shared.Proven.Buckets) * flowtable.PerBucket
		}
		return nil
	})
	return places
}

func bucketsOf(places int) int { return max((places+flowtable.PerBucket-1)/flowtable.PerBucket, 1) }

// use drops all marks where the table was replaced.
func (e *Exchange) use(table *flowtable.Table) {
	if e.table != table {
		e.table, e.next, e.marks = table, 0, make([]uint32, len(table.Buckets)*flowtable.PerBucket)
	}
}

// scanBucket calls changed with each flow of a bucket that differs from its mark, and updates the mark if changed
// returns true. Unchanged flows, which are nearly all, are not copied.
func (e *Exchange) scanBucket(number int, timeouts *[256]uint32,
	changed func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool) {
	bucket := &e.table.Buckets[number]
	for half := range bucket.Tags {
		tags := atomic.LoadUint64(&bucket.Tags[half])
		if tags == 0 {
			continue
		}
		states := uint32(atomic.LoadUint64(&bucket.States) >> (32 * half))
		for at := 4 * half; tags != 0; at, tags, states = at+1, tags>>16, states>>8 {
			tag, state := tags&0xffff, objects.XDPFlowState(uint8(states))
			if tag <= flowtable.BusyTag || state == objects.XDPFlowStateFLOW_FREE {
				continue
			}
			seen, known := atomic.LoadUint32(&bucket.Seen[at&7]), &e.marks[number*flowtable.PerBucket+at]
			if mark := markOf(&bucket.Flows[at&7], state, seen, timeouts); !isMarked(*known, mark) {
				place := flowtable.Place{Bucket: bucket, At: at}
				if flow := place.Flow(); place.Tag() == tag && changed(&flow, state, seen) {
					*known = markOf(&flow, state, seen, timeouts)
				}
			}
		}
	}
}

// marksPerTimeout is how often an active flow is sent within its timeout.
const marksPerTimeout = 4

// Bits of a mark: the place has a mark, and its flow came from another balancer. Further bits then have the approximate
// time at which that balancer saw it last.
const (
	markPresent = 1
	markMerged  = 2
	markSeen    = 0xff << markSeenShift

	markSeenShift = 2
	// seenShift converts milliseconds into the unit of those bits, which is about a step of the clock.
	seenShift = 8
)

// markMergedAs returns the mark of a flow that came from another balancer, which saw it at that time.
func markMergedAs(mark, seen uint32) uint32 {
	return mark&^uint32(markSeen) | markMerged | seen>>seenShift<<markSeenShift&markSeen
}

// isMarked reports whether the noted mark of a place equals this one.
func isMarked(known, mark uint32) bool {
	if known&markMerged != 0 {
		return known&^uint32(markSeen|markMerged) == mark&^uint32(markSeen)
	}
	return known == mark
}

// markOf hashes the parts of an entry that other balancers are notified of into a word, without markMerged.
func markOf(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32, timeouts *[256]uint32) uint32 {
	words := flowtable.WordsOf(flow)
	address, more := atomic.LoadUint64(&words[0]), atomic.LoadUint64(&words[1])
	owner, port := atomic.LoadUint64(&words[flowtable.OwnerWord]), atomic.LoadUint64(&words[flowtable.PortWord])
	sent := uint32(0)
	// No notification of further packets of an ended flow: they may belong to another connection, of which this
	// balancer is not notified yet.
	if flowtable.IsLive(state) {
		sent = seen / max(timeouts[uint8(state)]/marksPerTimeout, 1)
	}
	h := mapmem.HashMix(address*mapmem.HashMultiplier + more*mapmem.HashMultiplier2 + owner*mapmem.HashMultiplier3 +
		port*mapmem.HashMultiplier4 +
		(uint64(sent)<<8|uint64(uint8(state)))*mapmem.HashMultiplier5)
	return uint32(h>>32)&^markMerged | markPresent
}

// toPeerFlow translates an entry for another balancer; false where that balancer does not need it: it computes the same
// backend, the flow is a hairpin's, whose addresses are this host's, or the entry is a client's affinity.
func toPeerFlow(r *readview.FlowReader, gaps flowtable.ClockGaps, flow *objects.XDPFlow, state objects.XDPFlowState,
	seen uint32) (one lb.Flow, wanted bool) {
	one, wanted = r.Read(flow, state, seen)
	if !wanted {
		return one, false
	}
	record := r.RecordOf(flow)
	one.Silent += gaps.Since(seen)
	return one, !record.Service.IsHairpin && record.LooksUpFlows()
}
