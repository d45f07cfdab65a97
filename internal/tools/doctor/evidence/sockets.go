// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"net/netip"
	"slices"
)

// manyTimeouts is the number of timeouts from which a connection counts as hanging.
const manyTimeouts = 2

// Stuck reports whether a connection hangs as if its large packets were lost: it is established, but no full segment
// was ever acknowledged.
func (h Hanging) Stuck() bool {
	return h.Timeouts >= manyTimeouts && h.MSS > 536 && h.Acknowledged < uint64(h.MSS)
}

// HangingTo returns the number of stuck connections to an address.
func (e *Evidence) HangingTo(a netip.Addr) (n int) {
	if e.After.Sockets == nil {
		return 0
	}
	for _, h := range e.After.Sockets.Hanging {
		if h.Peer.Addr() == a && h.Stuck() {
			n++
		}
	}
	return n
}

// Size returns the number of usable ports in the range.
func (r PortRange) Size() int { return int(r.Last) - int(r.First) + 1 - r.Reserved }

// FullListeners returns the listening sockets that were full in either reading.
func (e *Evidence) FullListeners() (full []Listener) {
	for _, reading := range []*Sockets{e.After.Sockets, e.Before.Sockets} {
		if reading == nil {
			continue
		}
		for _, l := range reading.Listeners {
			if l.Queue >= l.Limit && !slices.ContainsFunc(full, func(f Listener) bool {
				return f.Address == l.Address
			}) {
				full = append(full, l)
			}
		}
	}
	return full
}
