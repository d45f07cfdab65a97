// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// picture is what is in use, for those that only read: it is never changed, and each change
// that was made publishes another. So status and counters do not wait for a change under way,
// which holds the datapath's lock while a program is loaded and verified.
type picture struct {
	attachments []lb.Attachment
	plan        lb.MemoryPlan
	// shared is nil before the first Apply. Its maps stay open for as long as a reader
	// holds Datapath.readers.
	shared  *sharedmaps.Maps
	records []*generation.Record
	// indices is how many backends the counters are read of.
	indices int
	ledger  sharedmaps.Ledger
	// numbers are those of full NAT's addresses.
	numbers generation.PoolNumbers
	// sockets are the programs at sockets; nil where there are none.
	sockets *localsockets.Sockets
	// err is why there is nothing to read any more.
	err error
}

// publishPicture shows what is in use now; the caller holds the lock.
func (d *Datapath) publishPicture() {
	next := &picture{attachments: slices.Clone(d.attachments), plan: d.plan, ledger: d.ledger}
	switch {
	case d.closed:
		next.err = ErrClosed
	case d.current != nil:
		next.shared, next.records, next.indices, next.numbers = d.shared, d.register.Records,
			d.register.Places.IndicesEver(), d.current.Memory.Numbers
		next.sockets = d.sockets
	}
	d.picture.Store(next)
}

// awaitReaders waits until readers of the pictures before the last have done, which takes
// milliseconds: then the maps that only those show may be closed.
func (d *Datapath) awaitReaders() {
	d.readers.Lock()
	defer d.readers.Unlock()
}

// read calls do with what is in use. Its maps stay open until do returns.
func (d *Datapath) read(do func(*picture) error) error {
	d.readers.RLock()
	defer d.readers.RUnlock()
	p := d.picture.Load()
	if p.err != nil {
		return p.err
	}
	return do(p)
}

// Attachments returns what is in use on each of Options.Interfaces, in their
// order; none before the first Apply. It does not wait for a change under way.
func (d *Datapath) Attachments() []lb.Attachment { return slices.Clone(d.picture.Load().attachments) }

// Memory returns what kernel memory is in use; the zero value before the first Apply. It does
// not wait for a change under way.
func (d *Datapath) Memory() lb.MemoryPlan { return d.picture.Load().plan }
