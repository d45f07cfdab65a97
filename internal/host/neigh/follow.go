// SPDX-License-Identifier: Apache-2.0

package neigh

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// run watches the kernel's neighbour table until ctx is done. The subscription ends when the kernel could not deliver
// an event for lack of buffer space (ENOBUFS): then the table is read again.
func (r *Resolver) run(ctx context.Context, updates <-chan netlink.NeighUpdate, stop func()) {
	defer close(r.ended)
	defer r.close()
	for {
		r.follow(ctx, updates)
		stop()
		updates, stop = r.resubscribe(ctx)
		if ctx.Err() != nil {
			stop()
			return
		}
	}
}

func (r *Resolver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.release()
}

// subscribe returns the events of the neighbour table, until stop is called or
// events are lost, which closes the channel.
func (r *Resolver) subscribe() (<-chan netlink.NeighUpdate, func(), error) {
	updates, done := make(chan netlink.NeighUpdate), make(chan struct{})
	err := r.ns.Do(func() error { return netlink.NeighSubscribe(updates, done) })
	if err != nil {
		return nil, nil, fmt.Errorf("follow the neighbour table: %w", err)
	}
	stop := func() {
		close(done)
		go func() {
			// Drain the channel: the sender may be blocked on it.
			for range updates {
			}
		}()
	}
	return updates, stop, nil
}

// resubscribe retries to subscribe until that succeeds, and then reads the table.
func (r *Resolver) resubscribe(ctx context.Context) (<-chan netlink.NeighUpdate, func()) {
	for {
		if ctx.Err() != nil {
			return nil, func() {}
		}
		updates, stop, err := r.subscribe()
		if err == nil {
			if err = r.resync(); err == nil {
				return updates, stop
			}
			stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.timing.retry):
		}
	}
}

// resync updates all peers from the neighbour table.
func (r *Resolver) resync() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	table, err := r.readTable()
	if err != nil {
		return err
	}
	now := time.Now()
	for addr, p := range r.peers {
		if p.update(table[addr], now, r.timing) {
			r.markChanged(p)
		}
	}
	return nil
}

// readTable returns the link's entries in the kernel's neighbour table.
func (r *Resolver) readTable() (map[netip.Addr]netlink.Neigh, error) {
	table := map[netip.Addr]netlink.Neigh{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netdump.Consistent(func() ([]netlink.Neigh, error) { return r.netlink.NeighList(r.index, family) })
		if err != nil {
			return nil, fmt.Errorf("read the neighbour table: %w", err)
		}
		for _, n := range list {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				table[key(addr)] = n
			}
		}
	}
	return table, nil
}

// follow applies events and sends probes that are due, until the events end or ctx is done.
func (r *Resolver) follow(ctx context.Context, updates <-chan netlink.NeighUpdate) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case update, ok := <-updates:
			if !ok {
				return
			}
			if !r.apply(update) {
				continue
			}
		case <-r.wake:
		case <-timer.C:
		}
		timer.Reset(r.probeDue())
	}
}

// apply applies one event, and reports whether it was about a peer.
func (r *Resolver) apply(u netlink.NeighUpdate) bool {
	addr, ok := netip.AddrFromSlice(u.IP)
	if !ok || u.LinkIndex != r.index || u.Flags&netlink.NTF_PROXY != 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[key(addr)]
	if p == nil {
		return false
	}
	now := u.Neigh
	if u.Type == unix.RTM_DELNEIGH {
		now = netlink.Neigh{}
	}
	r.restoreConfigured(p, now)
	if p.update(now, time.Now(), r.timing) {
		r.markChanged(p)
	}
	return true
}

// restoreConfigured rewrites an entry that an administrator configured just before a probe. The probe did not know of
// it and made it an ordinary entry, which the peer's answer overwrites. The kernel reports changes in their order:
// while the report of the probe itself is outstanding, the probe was the later change.
func (r *Resolver) restoreConfigured(p *peer, now netlink.Neigh) {
	if p.verifying && now.State&statesConfigured != 0 {
		_ = r.recordRefusal(p, r.writeEntry(p, netlink.Neigh{State: now.State, HardwareAddr: now.HardwareAddr}))
	}
	p.verifying = false
}

// probeDue probes all peers that are due, and returns the time until the next probe.
func (r *Resolver) probeDue() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	next := time.Hour
	for _, p := range r.peers {
		if !p.nextProbe.After(now) {
			// The error is in the entry.
			_ = r.probe(p, now)
		}
		next = min(next, p.nextProbe.Sub(now))
	}
	return max(next, 0)
}

// probe makes the kernel resolve a peer, or verify its entry.
func (r *Resolver) probe(p *peer, now time.Time) error {
	switch {
	case p.kernelState&(statesConfigured|statesProbing) != 0:
		p.nextProbe = now.Add(r.timing.verify)
		return nil
	case p.kernelState&(netlink.NUD_REACHABLE|netlink.NUD_STALE) != 0:
		// Up to three unicast requests to the known MAC address, which stays in use.
		err := r.writeEntry(p, netlink.Neigh{State: netlink.NUD_PROBE})
		if !errors.Is(err, unix.EINVAL) {
			p.nextProbe, p.verifying = now.Add(r.timing.verify), err == nil
			return r.recordRefusal(p, err)
		}
		// The kernel has lost the entry in the meantime.
		p.kernelState = netlink.NUD_NONE
	}
	// As if a packet for it were queued: up to three broadcast or multicast requests.
	p.probeSent(now, r.timing)
	return r.recordRefusal(p, r.writeEntry(p, netlink.Neigh{State: netlink.NUD_NONE, Flags: netlink.NTF_USE}))
}

// writeEntry writes the peer's entry in the neighbour table.
func (r *Resolver) writeEntry(p *peer, n netlink.Neigh) error {
	n.LinkIndex, n.IP = r.index, p.entry.Address.AsSlice()
	return r.netlink.NeighSet(&n)
}

// recordRefusal records the error with which the kernel refused to probe p, if any.
func (r *Resolver) recordRefusal(p *peer, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w (%w)", ErrNoRights, err)
	}
	err = fmt.Errorf("the kernel would not ask for %s: %w", p.entry.Address, err)
	if p.probeFailed(err) {
		r.markChanged(p)
	}
	return err
}
