// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mirror"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// replyHopBuffers are the buffers that the table of reply hops is read into, each second.
type replyHopBuffers struct {
	sync.Mutex
	keys []uint32
	hops []objects.XDPReplyHop
}

// ReplyHops returns the neighbours that replies (modes nat and fullnat) were sent to within the last while, as far as
// the clock that packets see has a tick for that, each once or twice: as a router, and as a client. Of those that were
// noted at the same place, by a hash, only the last one is known. There is none before the first Apply.
// It does not wait for a change under way. Errors: ErrClosed.
func (r *Reader) ReplyHops(within time.Duration) (hops []lb.ReplyHop, err error) {
	now := r.janitor.Now()
	err = r.published.Read(func(p *Picture) error {
		if p.Shared == nil || p.Shared.ReplyHops.MaxEntries() <= 1 {
			return nil
		}
		r.replyHops.Lock()
		defer r.replyHops.Unlock()
		read, err := r.replyHops.read(p.Shared.ReplyHops)
		for i := range read {
			// The clock wraps around; a tick may be newer than what now was read.
			if age := int32(now - read[i].Seen); read[i].Flags != 0 && int64(age) <= within.Milliseconds() {
				hops = append(hops, hopOf(&read[i]))
			}
		}
		return err
	})
	return hops, err
}

// read reads the whole table, whose elements follow each other; the caller holds the lock.
func (b *replyHopBuffers) read(m *ebpf.Map) ([]objects.XDPReplyHop, error) {
	if b.keys == nil {
		b.keys, b.hops = make([]uint32, m.MaxEntries()), make([]objects.XDPReplyHop, m.MaxEntries())
	}
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, b.keys, b.hops, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that it was the last batch
		return nil, fmt.Errorf("reading the next hops of replies: %w", err)
	}
	return b.hops[:n], nil
}

// hopOf returns a next hop as it was noted.
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

// withMirror calls do with the mirror of the routes that replies take; not before the first Apply, and not where no
// mode has replies. It does not wait for a change under way.
func (r *Reader) withMirror(do func(mirror.Table)) error {
	return r.published.Read(func(p *Picture) error {
		if p.Shared != nil && p.Shared.ReplyBlocks.MaxEntries() == mirror.Blocks {
			do(p.Shared.Mirror())
		}
		return nil
	})
}

// InvalidateReplyRoutes has packets ask the kernel where replies go, from now on. Errors: ErrClosed.
func (r *Reader) InvalidateReplyRoutes() error { return r.withMirror(mirror.Table.Invalidate) }

// WriteReplyRoutes writes the routes that packets use, once the earlier ones have been retracted; it takes two grace
// periods of RCU. Errors: ErrClosed.
func (r *Reader) WriteReplyRoutes(routes lb.ReplyRoutes) error {
	return r.withMirror(func(t mirror.Table) { t.Write(routes) })
}

// EnableReplyRoutes lets packets go by the routes that were written. Errors: ErrClosed.
func (r *Reader) EnableReplyRoutes(routes lb.ReplyRoutes) error {
	return r.withMirror(func(t mirror.Table) { t.Enable(routes.IPv4, routes.IPv6) })
}

// ReplyRoutesEnabled reports whether packets go by the routes that were written, and whether there are packets that
// could. Errors: ErrClosed.
func (r *Reader) ReplyRoutesEnabled() (holds, could bool, err error) {
	err = r.withMirror(func(t mirror.Table) { holds, could = t.Enabled(), true })
	return holds, could, err
}
