// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// record is a service as the data plane has it. It is not changed; each change makes
// another.
type record struct {
	key     lb.ServiceKey
	service lb.RoutedService
	id      uint32
	// group is the id of the group whose persistence it shares, if there is one.
	group uint32
	// exceptions is the number of its list of exceptions, 0 if it has none.
	exceptions uint32
	// clients is the number of the list of the clients that it serves, 0 if it serves all.
	clients uint32
	// places[i] is that of Backends[i].
	places []place
	// remembers: every flow of the service is remembered.
	remembers bool
	view      tables.View
	// published is when the service came; zero where a process before had it.
	published time.Time
	// digests is shared by records that differ in the course of a transition only.
	digests *digests
	// placement is where it is in the memory of the generation.
	placement placement
}

// row is backend i as the data plane reads it.
func (r *record) row(i int) objects.XDPBackend {
	s := &r.service
	backend, place := &s.Backends[i], r.places[i]
	value := objects.XDPBackend{
		Index:      place.index,
		Generation: place.generation,
		Address:    mapmem.OfAddress(backend.Address),
		Port:       mapmem.NetworkOrder(backend.Port),
		Weight:     tables.Weight(s, i),
	}
	if backend.Address.Is6() {
		value.Ipv6 = 1
	}
	if s.Up(i) {
		putPath(&s.Paths[i], &value)
	}
	return value
}

// put makes a backend reachable.
func putPath(p *lb.Path, b *objects.XDPBackend) {
	b.Up = 1
	b.Destination = [lb.MACLength]uint8(p.MAC)
	b.Source = [lb.MACLength]uint8(p.Source)
	b.Interface = uint32(p.Interface)
	b.Mtu = p.LargestPacket()
	if p.Local.IsValid() {
		b.Local = mapmem.OfAddress(p.Local)
	}
}

// rows are all of them.
func (r *record) rows() []objects.XDPBackend {
	rows := make([]objects.XDPBackend, len(r.service.Backends))
	for i := range rows {
		rows[i] = r.row(i)
	}
	return rows
}

// members are the rows of the members, in their order.
func (r *record) members(rows []objects.XDPBackend) []objects.XDPBackend {
	members := make([]objects.XDPBackend, 0, len(r.view.Table.Owners))
	for i := range rows {
		if r.service.TakesFlows(i) {
			members = append(members, rows[i])
		}
	}
	return members
}

// baseMembers are the rows of the base's members as they are now; one that is not
// configured any more is down.
func (r *record) baseMembers(rows []objects.XDPBackend) []objects.XDPBackend {
	members := make([]objects.XDPBackend, len(r.view.Base.Owners))
	for member, i := range tables.Renumbered(r.view.Base.Owners, tables.Endpoints(&r.service)) {
		if i != tables.NoMember {
			members[member] = rows[i]
		}
	}
	return members
}

// value is the service as the data plane reads it, but for where its blocks are.
func (r *record) value() objects.XDPService {
	s := &r.service
	value := objects.XDPService{
		TableSize: uint32(len(r.view.Table.Slots)),
		Id:        r.id,
		Flags:     r.flags(),
		Scheduler: uint8(schedulerNumbers[s.Scheduler]),
		Mode:      uint8(modeNumbers[s.Mode]),
		Mss:       s.MSS,
		Tos:       s.DSCP << 2,
		Kind:      uint8(objects.XDPServiceKindKIND_SERVICE),
		Clients:   [3]uint8{uint8(r.clients), uint8(r.clients >> 8), uint8(r.clients >> 16)},
	}
	if r.view.Base != nil {
		value.BaseSize = uint32(len(r.view.Base.Slots))
	}
	if s.Persistence.On() {
		value.Prefix = clientBits(s)
	}
	return value
}

// transitionFlags are those that come and go with a transition.
const transitionFlags = uint16(objects.XDPServiceFlagSERVICE_MOVED | objects.XDPServiceFlagSERVICE_BASE)

func (r *record) flags() uint16 {
	s, flags := &r.service, objects.XDPServiceFlag(0)
	for _, f := range []struct {
		flag objects.XDPServiceFlag
		on   bool
	}{
		{objects.XDPServiceFlagSERVICE_BY_SOURCE, s.BySource()},
		{objects.XDPServiceFlagSERVICE_TRACKED, r.remembers},
		{objects.XDPServiceFlagSERVICE_MOVED, r.view.InTransition()},
		{objects.XDPServiceFlagSERVICE_BASE, r.view.Base != nil},
		{objects.XDPServiceFlagSERVICE_PERSISTENT, s.Persistence.On()},
		{objects.XDPServiceFlagSERVICE_RATE, s.Limits.Rate > 0},
		{objects.XDPServiceFlagSERVICE_LIMITED, s.Limits.Connections > 0 || slices.ContainsFunc(s.Backends,
			func(b lb.Backend) bool { return b.Upper > 0 })},
		{objects.XDPServiceFlagSERVICE_ANSWERS, s.Limits.Refuse == lb.RefuseByReset},
		{objects.XDPServiceFlagSERVICE_RESETS, s.Checks.OnDown == lb.ResetFlows},
		{objects.XDPServiceFlagSERVICE_LISTED, s.Listed()},
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

// Nanoseconds of a second.
const second = uint64(time.Second)

// putTurn writes the limits of the service, and what replies to full NAT become.
func (r *record) putTurn(turn mapmem.Storage) {
	limits := r.service.Limits
	var interval, burst uint64
	if limits.Rate > 0 {
		interval = max(second/uint64(limits.Rate), 1)
		burst = uint64(limits.Burst) * second / uint64(limits.Rate)
	}
	turn.Store(2, interval)
	turn.Store(3, burst)
	mapmem.StoreHalf(turn, 9, limits.Connections)
	to := &mapmem.ElementsOf[objects.XDPTurn](turn)[0]
	to.Vip, to.VipPort = mapmem.OfAddress(r.service.VIP), mapmem.NetworkOrder(r.service.Port)
	to.Mss, to.Protocol = r.service.MSS, uint8(r.service.Protocol)
	to.Tracked = 0
	if r.remembers {
		to.Tracked = 1
	}
	// The next table may begin where one did that is known by its place, with others in it.
	to.HasOneWith(0)
}

// putLoad writes the thresholds of backend i.
func (r *record) putLoad(load mapmem.Storage, i int) {
	backend := &r.service.Backends[i]
	mapmem.StoreHalf(load, 1, backend.Upper)
	mapmem.StoreHalf(load, 2, backend.Lower)
}

// forgiveLoad forgets what a backend has refused that had the index before.
func forgiveLoad(load mapmem.Storage) {
	mapmem.StoreHalf(load, 4, 0)
	mapmem.StoreHalf(load, 5, 0)
}

var schedulerNumbers = map[lb.Scheduler]objects.XDPScheduler{
	lb.RoundRobin:               objects.XDPSchedulerSCHEDULER_TURN,
	lb.WeightedRoundRobin:       objects.XDPSchedulerSCHEDULER_TURN,
	lb.LeastConnections:         objects.XDPSchedulerSCHEDULER_FEWEST,
	lb.WeightedLeastConnections: objects.XDPSchedulerSCHEDULER_LEAST,
	lb.SourceHash:               objects.XDPSchedulerSCHEDULER_HASH,
	lb.Maglev:                   objects.XDPSchedulerSCHEDULER_HASH,
	lb.TwoChoices:               objects.XDPSchedulerSCHEDULER_TWO,
	lb.Failover:                 objects.XDPSchedulerSCHEDULER_FIRST,
}

var modeNumbers = map[lb.Mode]objects.XDPMode{
	lb.L2DSR:   objects.XDPModeMODE_L2DSR,
	lb.IPIP:    objects.XDPModeMODE_IPIP,
	lb.GUE:     objects.XDPModeMODE_GUE,
	lb.DSCP:    objects.XDPModeMODE_DSCP,
	lb.NAT:     objects.XDPModeMODE_NAT,
	lb.FullNAT: objects.XDPModeMODE_FULLNAT,
}

// takes says whether flows of a backend find service and backend here, and are looked for.
func (r *register) takes(key lb.BackendKey) bool {
	record := r.byKey[key.Service]
	_, known := r.places.backends[key]
	return record != nil && known && record.looksUp()
}

// looksUp says whether packets of the service look for their flow.
func (r *record) looksUp() bool { return r.remembers || r.view.InTransition() }
