// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
)

// publishView publishes the present state of the data plane for readers; the caller holds the lock.
func (d *Datapath) publishView() {
	next := &readview.View{Attachments: slices.Clone(d.attachments), Plan: d.plan, Ledger: d.ledger}
	switch {
	case d.closed:
		next.Err = ErrClosed
	case d.current != nil:
		next.Shared, next.Records, next.Indices, next.Numbers = d.shared, d.register.Records,
			d.register.Places.IndicesEver(), d.current.Memory.Numbers
		next.Sockets = d.sockets
	}
	d.published.Publish(next)
}
