// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mirror"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// replyHopBuffers are the buffers for the table of reply hops, which is read each second.
type replyHopBuffers struct {
	sync.Mutex
	keys []uint32
	hops []objects.XDPReplyHop
}

// ReplyHops returns the neighbours to which replies (modes nat and fullnat) were sent within that time, to the
// resolution of the data plane's clock, each once or twice: as a router, and as a client. Of neighbours whose hashes
// collide, only the last one is known. It returns none before the first Apply, and does not wait for a change under
// way. Errors: ErrClosed.
func (r *Reader) ReplyHops(within time.Duration) (hops []lb.ReplyHop, err error) {
	err = r.published.Read(func(p *View) error {
		if p.Shared == nil || p.Shared.ReplyHops.MaxEntries() <= 1 {
			return nil
		}
		r.replyHops.Lock()
		defer r.replyHops.Unlock()
		read, err := r.replyHops.read(p.Shared.ReplyHops)
		now := r.janitor.Now() // afterwards, so that no entry is newer
		for i := range read {
			if read[i].Flags != 0 && usedWithin(now, read[i].Seen, within) {
				hops = append(hops, hopOf(&read[i]))
			}
		}
		return err
	})
	return hops, err
}

// usedWithin reports whether a neighbour was last used at most that long ago. The clock wraps around, and entries may
// be of any age, as none is removed: so a difference has no sign.
func usedWithin(now, seen uint32, within time.Duration) bool {
	return now-seen <= flowtable.Milliseconds(within)
}

// read reads the complete table; the caller holds the lock.
func (b *replyHopBuffers) read(m *ebpf.Map) ([]objects.XDPReplyHop, error) {
	if b.keys == nil {
		b.keys, b.hops = make([]uint32, m.MaxEntries()), make([]objects.XDPReplyHop, m.MaxEntries())
	}
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, b.keys, b.hops, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // ErrKeyNotExist ends the last batch
		return nil, fmt.Errorf("reading the next hops of replies: %w", err)
	}
	return b.hops[:n], nil
}

// hopOf translates an entry of the table.
func hopOf(h *objects.XDPReplyHop) lb.ReplyHop {
	var address [16]byte
	for i, word := range h.Address {
		binary.NativeEndian.PutUint32(address[4*i:], word)
	}
	hop := lb.ReplyHop{Interface: int(h.Interface), Address: netip.AddrFrom16(address),
		Router: h.Flags&uint32(objects.XDPHopFlagHOP_ROUTER) != 0}
	if h.Flags&uint32(objects.XDPHopFlagHOP_IPV4) != 0 {
		hop.Address = netip.AddrFrom4([4]byte(address[:4]))
	}
	return hop
}

// withMirror calls do with the mirror of the routes of replies, unless there is none: before the first Apply, and where
// no mode has replies. It does not wait for a change under way.
func (r *Reader) withMirror(do func(mirror.Table)) error {
	return r.published.Read(func(p *View) error {
		if p.Shared != nil && p.Shared.ReplyBlocks.MaxEntries() == mirror.Blocks {
			do(p.Shared.Mirror())
		}
		return nil
	})
}

// InvalidateReplyRoutes makes packets use the kernel's route lookup for replies from now on. Errors: ErrClosed.
func (r *Reader) InvalidateReplyRoutes() error { return r.withMirror(mirror.Table.Invalidate) }

// WriteReplyRoutes writes the routes of replies, after the earlier ones were invalidated; it waits for two grace
// periods of RCU. Errors: ErrClosed.
func (r *Reader) WriteReplyRoutes(routes lb.ReplyRoutes) error {
	return r.withMirror(func(t mirror.Table) { t.Write(routes) })
}

// EnableReplyRoutes makes packets use the written routes. Errors: ErrClosed.
func (r *Reader) EnableReplyRoutes(routes lb.ReplyRoutes) error {
	return r.withMirror(func(t mirror.Table) { t.Enable(routes.IPv4, routes.IPv6) })
}

// ReplyRoutesEnabled reports whether packets use the written routes, and whether there is a mirror. Errors: ErrClosed.
func (r *Reader) ReplyRoutesEnabled() (enabled, present bool, err error) {
	err = r.withMirror(func(t mirror.Table) { enabled, present = t.Enabled(), true })
	return enabled, present, err
}
