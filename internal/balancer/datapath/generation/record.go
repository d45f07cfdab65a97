// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Record is a service as it is in the data plane. It is immutable; each change makes another.
type Record struct {
	Key     lb.ServiceKey
	Service lb.RoutedService
	ID      uint32
	// Group is the id of the group whose persistence it shares, if there is one.
	Group uint32
	// Exceptions is the number of its list of exceptions, 0 if it has none.
	Exceptions uint32
	// clients is the number of the list of the clients that it serves, 0 if it serves all.
	clients uint32
	// Places[i] is the place of Backends[i].
	Places []Place
	// Remembers: every flow of the service is remembered.
	Remembers bool
	View      tables.View
	// published is when the service was added; zero where an earlier process had it.
	published time.Time
	// digests is shared by records that differ in the state of a transition only.
	digests *digests
	// placement is its placement in the memory of the generation.
	placement Placement
}

// Row returns backend i in the layout of the data plane.
func (r *Record) Row(i int) objects.XDPBackend {
	s := &r.Service
	backend, place := &s.Backends[i], r.Places[i]
	value := objects.XDPBackend{
		Index:      place.Index,
		Generation: place.Generation,
		Address:    mapmem.OfAddress(backend.Address),
		Port:       mapmem.NetworkOrder(backend.Port),
		Weight:     tables.Weight(s, i),
	}
	if backend.Address.Is6() {
		value.Ipv6 = 1
	}
	if s.Up(i) {
		PutPath(&s.Paths[i], &value)
	}
	return value
}

// PutPath writes a path into a backend's row, and marks the backend as up.
func PutPath(p *lb.Path, b *objects.XDPBackend) {
	b.Up = 1
	b.Destination = [lb.MACLength]uint8(p.MAC)
	b.Source = [lb.MACLength]uint8(p.Source)
	b.Interface = uint32(p.Interface)
	b.Mtu = p.LargestPacket()
	if p.Local.IsValid() {
		b.Local = mapmem.OfAddress(p.Local)
	}
}

// rows returns the rows of all backends.
func (r *Record) rows() []objects.XDPBackend {
	rows := make([]objects.XDPBackend, len(r.Service.Backends))
	for i := range rows {
		rows[i] = r.Row(i)
	}
	return rows
}

// members returns the rows of the members, in their order.
func (r *Record) members(rows []objects.XDPBackend) []objects.XDPBackend {
	members := make([]objects.XDPBackend, 0, len(r.View.Table.Owners))
	for i := range rows {
		if r.Service.TakesFlows(i) {
			members = append(members, rows[i])
		}
	}
	return members
}

// baseMembers returns the present rows of the base's members; a removed backend is down.
func (r *Record) baseMembers(rows []objects.XDPBackend) []objects.XDPBackend {
	members := make([]objects.XDPBackend, len(r.View.Base.Owners))
	for member, i := range tables.Renumbered(r.View.Base.Owners, tables.Endpoints(&r.Service)) {
		if i != tables.NoMember {
			members[member] = rows[i]
		}
	}
	return members
}

// value returns the service in the layout of the data plane, without the offsets of its blocks.
func (r *Record) value() objects.XDPService {
	s := &r.Service
	value := objects.XDPService{
		TableSize: uint32(len(r.View.Table.Slots)),
		Id:        r.ID,
		Flags:     r.flags(),
		Scheduler: uint8(schedulerNumbers[s.Scheduler]),
		Mode:      uint8(ModeNumbers[s.Mode]),
		Mss:       s.MSS,
		Tos:       s.DSCP << 2,
		Kind:      uint8(objects.XDPServiceKindKIND_SERVICE),
		Clients:   [3]uint8{uint8(r.clients), uint8(r.clients >> 8), uint8(r.clients >> 16)},
	}
	if r.View.Base != nil {
		value.BaseSize = uint32(len(r.View.Base.Slots))
	}
	if s.Persistence.On() {
		value.Prefix = clientBits(s)
	}
	return value
}

// transitionFlags are the flags that are set during a transition.
const transitionFlags = uint16(objects.XDPServiceFlagSERVICE_MOVED | objects.XDPServiceFlagSERVICE_BASE)

func (r *Record) flags() uint16 {
	s, flags := &r.Service, objects.XDPServiceFlag(0)
	for _, f := range []struct {
		flag objects.XDPServiceFlag
		on   bool
	}{
		{objects.XDPServiceFlagSERVICE_BY_SOURCE, s.BySource()},
		{objects.XDPServiceFlagSERVICE_TRACKED, r.Remembers},
		{objects.XDPServiceFlagSERVICE_MOVED, r.View.InTransition()},
		{objects.XDPServiceFlagSERVICE_BASE, r.View.Base != nil},
		{objects.XDPServiceFlagSERVICE_PERSISTENT, s.Persistence.On()},
		{objects.XDPServiceFlagSERVICE_RATE, s.Limits.Rate > 0},
		{objects.XDPServiceFlagSERVICE_LIMITED, s.Limits.Connections > 0 || slices.ContainsFunc(s.Backends,
			func(b lb.Backend) bool { return b.Upper > 0 })},
		{objects.XDPServiceFlagSERVICE_ANSWERS, s.Limits.Refuse == lb.RefuseByReset},
		{objects.XDPServiceFlagSERVICE_RESETS, s.Checks.OnDown == lb.ResetFlows},
		{objects.XDPServiceFlagSERVICE_LISTED, s.RestrictsClients()},
		{objects.XDPServiceFlagSERVICE_HAIRPIN, s.HasHairpin},
		{objects.XDPServiceFlagSERVICE_IS_HAIRPIN, s.IsHairpin},
		{objects.XDPServiceFlagSERVICE_GROUPED, s.Persistence.On() && s.Persistence.Group != ""},
	} {
		if f.on {
			flags |= f.flag
		}
	}
	return uint16(flags)
}

// second is a second in nanoseconds.
const second = uint64(time.Second)

// PutTurn writes the limits of the service, and the source address and port of full NAT's replies, at a time of the
// monotonic clock.
func (r *Record) PutTurn(turn mapmem.Storage, now time.Duration) {
	limits := r.Service.Limits
	var interval, burst uint64
	if limits.Rate > 0 {
		interval = max(second/uint64(limits.Rate), 1)
		burst = uint64(limits.Burst) * second / uint64(limits.Rate)
	}
	turn.Store(2, interval)
	turn.Store(3, burst)
	mapmem.StoreHalf(turn, 9, limits.Connections)
	to := &mapmem.ElementsOf[objects.XDPTurn](turn)[0]
	if limits.Rate > 0 {
		limitDue(&to.Due, uint64(now)+burst+interval)
	}
	to.Vip, to.VipPort = mapmem.OfAddress(r.Service.VIP), mapmem.NetworkOrder(r.Service.Port)
	to.Mss, to.Protocol = r.Service.MSS, uint8(r.Service.Protocol)
	if !r.Remembers {
		to.Tracked = 0
	} else if to.Tracked == 0 {
		to.Tracked = uint8(objects.XDPTurnTrackedTURN_TRACKED)
	}
	// The cached minimum identifies a table by its offset, at which another table may begin now.
	to.LowerMinimum(0)
}

// limitDue brings the time at which the next connection is due forward to the latest that the present rate and burst
// lead to. Connections that an earlier rate has admitted may have put it off for longer, and every new one would be
// refused until then.
func limitDue(due *uint64, latest uint64) {
	for {
		before := atomic.LoadUint64(due)
		if before <= latest || atomic.CompareAndSwapUint64(due, before, latest) {
			return
		}
	}
}

// PutLoad writes the thresholds of backend i.
func (r *Record) PutLoad(load mapmem.Storage, i int) {
	backend := &r.Service.Backends[i]
	mapmem.StoreHalf(load, 1, backend.Upper)
	mapmem.StoreHalf(load, 2, backend.Lower)
}

// clearPenalty clears the penalty of the backend that had the index before.
func clearPenalty(load mapmem.Storage) {
	mapmem.StoreHalf(load, 4, 0)
	mapmem.StoreHalf(load, 5, 0)
}

var schedulerNumbers = map[lb.Scheduler]objects.XDPScheduler{
	lb.RoundRobin:               objects.XDPSchedulerSCHEDULER_ROUND_ROBIN,
	lb.WeightedRoundRobin:       objects.XDPSchedulerSCHEDULER_ROUND_ROBIN,
	lb.LeastConnections:         objects.XDPSchedulerSCHEDULER_LEAST_CONN,
	lb.WeightedLeastConnections: objects.XDPSchedulerSCHEDULER_WEIGHTED_LEAST_CONN,
	lb.SourceHash:               objects.XDPSchedulerSCHEDULER_HASH,
	lb.Maglev:                   objects.XDPSchedulerSCHEDULER_HASH,
	lb.TwoChoices:               objects.XDPSchedulerSCHEDULER_TWO_CHOICES,
	lb.Failover:                 objects.XDPSchedulerSCHEDULER_FIRST,
}

var ModeNumbers = map[lb.Mode]objects.XDPMode{
	lb.L2DSR:   objects.XDPModeMODE_L2DSR,
	lb.IPIP:    objects.XDPModeMODE_IPIP,
	lb.GUE:     objects.XDPModeMODE_GUE,
	lb.DSCP:    objects.XDPModeMODE_DSCP,
	lb.NAT:     objects.XDPModeMODE_NAT,
	lb.FullNAT: objects.XDPModeMODE_FULLNAT,
}

// LooksUpFlows reports whether packets of the service look their flow up.
func (r *Record) LooksUpFlows() bool { return r.Remembers || r.View.InTransition() }

// Place is a backend's index and generation in the maps. It keeps both for as long as it is configured, so that its
// counters and its flows stay its own.
type Place struct {
	Index uint32
	// Generation tells this owner of the index from those before it. It is not 0.
	Generation uint16
}

// Placement has the extents of a service in the memory of a generation, and the service's value there.
type Placement struct {
	value objects.XDPService
	// The extents of its blocks; nil where a block is empty.
	table, members, baseTable, baseMembers *mapmem.Extent
	// baseIdle says that no packet may still be reading an earlier base; nil: there was none.
	baseIdle *bool
}

// pieces lists the extents of blocks that are not empty.
func (l *Placement) pieces() []*mapmem.Extent {
	var all []*mapmem.Extent
	for _, e := range []*mapmem.Extent{l.table, l.members, l.baseTable, l.baseMembers} {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

// digests caches a service's digest. It is computed at the first call of Digest, since that takes milliseconds for a
// large table, and a change must not wait for it.
type digests struct {
	once  sync.Once
	value uint64
}

// clientBits returns the length of the prefix that identifies a client for a service's persistence.
func clientBits(s *lb.RoutedService) uint8 {
	if length := uint8(s.VIP.BitLen()); s.Persistence.Prefix == 0 || s.Persistence.Prefix > length {
		return length
	}
	return s.Persistence.Prefix
}
