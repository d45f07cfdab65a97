// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// digestVersion is part of every digest. It changes with the function that maps a flow to a slot: the hash of
// bpf/lib/hash.h.
const digestVersion = "jeoul table 1"

// Digest returns a number, never 0, that is equal on two balancers exactly when they send new flows of the service to
// the same backends. It is XXH64 of all inputs of that decision, without numbers that are local to this process:
// backends are identified by their endpoints.
func (r *Record) Digest() uint64 {
	r.digests.once.Do(func() { r.digests.value = cmp.Or(digestOf(&r.Service, r.View.Table), 1) })
	return r.digests.value
}

// digestWriter hashes values, each in an unambiguous form.
type digestWriter struct{ *xxhash.Digest }

func (w digestWriter) number(n uint64) {
	var word [8]byte
	binary.BigEndian.PutUint64(word[:], n)
	_, _ = w.Write(word[:]) // it never fails
}

func (w digestWriter) text(s string) {
	w.number(uint64(len(s)))
	_, _ = w.WriteString(s)
}

func (w digestWriter) boolean(b bool) {
	if b {
		w.number(1)
	} else {
		w.number(0)
	}
}

// prefixes writes a set.
func (w digestWriter) prefixes(set []netip.Prefix) {
	texts := make([]string, len(set))
	for i, p := range set {
		texts[i] = p.String()
	}
	slices.Sort(texts)
	w.number(uint64(len(texts)))
	for _, text := range texts {
		w.text(text)
	}
}

func digestOf(s *lb.RoutedService, t *tables.Table) uint64 {
	w := digestWriter{xxhash.New()}
	w.text(digestVersion)
	w.text(s.Key().String())
	w.text(string(s.Mode))
	w.text(string(s.Scheduler))
	w.boolean(s.BySource())
	w.boolean(s.Persistence.On())
	if s.Persistence.On() {
		w.number(uint64(clientBits(s)))
		w.text(s.Persistence.Group)
	}
	w.prefixes(s.Allow)
	w.prefixes(s.Deny)
	members := memberDigests(s, t)
	switch {
	case s.Scheduler == lb.Failover:
		w.order(members, limited(s))
	case s.Scheduler.Remembers():
		w.set(members)
	default:
		w.slots(t.Slots, members)
	}
	return w.Sum64()
}

// limited reports whether a member has a limit of flows, beyond which new ones go to others.
func limited(s *lb.RoutedService) bool {
	return slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Upper > 0 })
}

// memberDigests returns the members' digests, in their order: of the endpoint and its limits, and of the weight where
// the table does not depend on it.
func memberDigests(s *lb.RoutedService, t *tables.Table) []uint64 {
	digests := make([]uint64, 0, len(t.Owners))
	var bounds map[netip.AddrPort]lb.Backend
	if limited(s) {
		bounds = make(map[netip.AddrPort]lb.Backend, len(s.Backends))
		for _, b := range s.Backends {
			bounds[netip.AddrPortFrom(b.Address, b.Port)] = b
		}
	}
	w := digestWriter{xxhash.New()}
	for i, owner := range t.Owners {
		w.Reset()
		w.text(owner.String())
		bound := bounds[owner]
		w.number(uint64(bound.Upper)<<32 | uint64(bound.Lower))
		if s.Scheduler.Remembers() {
			w.number(uint64(t.Weights[i]))
		}
		digests = append(digests, w.Sum64())
	}
	return digests
}

// order writes the members in order, or only the first one if a full member is not skipped.
func (w digestWriter) order(members []uint64, all bool) {
	if !all && len(members) > 1 {
		members = members[:1]
	}
	w.number(uint64(len(members)))
	for _, member := range members {
		w.number(member)
	}
}

// set writes the members in an order that does not depend on the configuration's.
func (w digestWriter) set(members []uint64) {
	members = slices.Clone(members)
	slices.Sort(members)
	w.order(members, true)
}

// slots writes the member of each slot.
func (w digestWriter) slots(slots []uint16, members []uint64) {
	w.number(uint64(len(slots)))
	var words [512]byte
	for part := range slices.Chunk(slots, len(words)/8) {
		for i, member := range part {
			binary.BigEndian.PutUint64(words[i*8:], members[member])
		}
		_, _ = w.Write(words[:len(part)*8])
	}
}

// Takers returns the members, or nil if there are more than lb.MaxTakers.
func (r *Record) Takers() []lb.Taker {
	t := r.View.Table
	if len(t.Owners) > lb.MaxTakers {
		return nil
	}
	list := make([]lb.Taker, len(t.Owners))
	for i, owner := range t.Owners {
		list[i] = lb.Taker{Endpoint: owner, Weight: t.Weights[i]}
	}
	return list
}
