// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"slices"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// A change of the configuration in use has two phases. The first allocates room for all new values and writes them
// where no packet reads; it may fail, and then changes nothing. The second publishes them, service by service and word
// by word, in an order in which a packet never follows a reference to a value that is not written yet. It cannot fail.

// Publication is a change whose first phase is complete.
type Publication struct {
	memory   *Memory
	revision *Revision
	services []serviceEntry
	// Rows are the rows of present backends, and removed those of removed ones.
	Rows, removed []row
	// spares is the number of spare rows that they take.
	spares    int
	endpoints []slotValue[natEndpoint]
	// vips and backendAddresses are the entries of addresses to be added.
	vips, backendAddresses []slotValue[netip.Addr]
}

// serviceEntry is a service that is to be published.
type serviceEntry struct {
	serviceChange
	placement Placement
	// slot is its new slot in the directory, unless it changes in place.
	slot    uint32
	inPlace bool
}

// row is a new value for a backend's index.
type row struct {
	index uint32
	value objects.XDPBackend
}

// slotValue is a value for a reserved slot of a directory, or for the slot that it has, where only one word differs.
type slotValue[V any] struct {
	key     mapmem.Key
	content V
	in      *mapmem.Directory
	slot    uint32
	inPlace bool
}

// Prepare runs the first phase. It returns nil where there is no room.
func (m *Memory) Prepare(c *Revision) *Publication {
	p := &Publication{memory: m, revision: c}
	if p.placeAll() && p.addRemovedRows() && p.prepareEndpoints() && p.prepareAddresses() {
		return p
	}
	p.cancel()
	return nil
}

// PrepareOrWait is Prepare, but waits for a grace period where that may free room.
func (m *Memory) PrepareOrWait(c *Revision) *Publication {
	p := m.Prepare(c)
	if p == nil && m.Grace.Wait() {
		p = m.Prepare(c)
	}
	return p
}

// cancel frees the memory that was reserved.
func (p *Publication) cancel() {
	for i := range p.services {
		e := &p.services[i]
		p.memory.release(&e.placement, p.memory.arena.Free)
		if !e.inPlace {
			p.memory.services[mapmem.Family(e.after.Key.VIP)].Cancel(e.slot)
		}
	}
	for _, e := range p.endpoints {
		if !e.inPlace {
			e.in.Cancel(e.slot)
		}
	}
	for _, list := range [][]slotValue[netip.Addr]{p.vips, p.backendAddresses} {
		for _, e := range list {
			e.in.Cancel(e.slot)
		}
	}
}

// placeAll allocates room for the services and their backends.
func (p *Publication) placeAll() bool {
	for _, s := range p.revision.services {
		rows := s.after.rows()
		placement, ok := p.memory.placeService(s.after, s.before, rows)
		if !ok {
			return false
		}
		e := serviceEntry{serviceChange: s, placement: placement}
		e.inPlace = s.before != nil && s.before.placement.canUpdateTo(&e.placement)
		if !e.inPlace {
			if e.slot, ok = p.memory.services[mapmem.Family(s.after.Key.VIP)].Reserve(s.after.slotKey()); !ok {
				p.memory.release(&placement, p.memory.arena.Free)
				return false
			}
		}
		p.services = append(p.services, e)
		for i := range rows {
			p.addRow(&p.Rows, row{s.after.Places[i].Index, rows[i]})
		}
	}
	return true
}

// canUpdateTo reports whether a service can change in place without packets seeing a mixture: where only its blocks and
// the flags of a transition differ.
func (l *Placement) canUpdateTo(o *Placement) bool {
	a, b := l.value, o.value
	switch hadBase, hasBase := l.hasBase(), o.hasBase(); {
	case hadBase && hasBase && a.BaseSize != b.BaseSize:
		return false
	case !hadBase && hasBase && l.baseIdle != nil && !*l.baseIdle:
		return false
	}
	a.Flags, b.Flags = a.Flags&^transitionFlags, b.Flags&^transitionFlags
	a.BaseSize, b.BaseSize = 0, 0
	a.Current, a.Base, b.Current, b.Base = objects.XDPBlock{}, objects.XDPBlock{}, objects.XDPBlock{},
		objects.XDPBlock{}
	return a == b
}

// addRow adds a row that differs from the one in memory.
func (p *Publication) addRow(to *[]row, r row) {
	rows := p.memory.Rows
	if r.value == rows.Get(r.index) {
		return
	}
	if rows.NeedsSpare(r.index, &r.value) {
		p.spares++
	}
	*to = append(*to, r)
}

// addRemovedRows adds the rows of indices without a backend. They keep their path: a packet in processing may have
// selected the backend, and reads its row after that. It reports whether there is room for all rows.
func (p *Publication) addRemovedRows() bool {
	c := p.revision.Places
	given := make(map[uint32]bool, len(c.added))
	for _, a := range c.added {
		given[a.record.Places[a.at].Index] = true
	}
	leaving := slices.Clone(c.vacated)
	for _, d := range c.removed {
		leaving = append(leaving, d.Index)
	}
	for _, index := range leaving {
		if !given[index] {
			value := p.memory.Rows.Get(index)
			value.Index, value.Generation, value.Weight, value.Up = index, c.generations[index], 0, 0
			p.addRow(&p.removed, row{index, value})
		}
	}
	return p.spares <= p.memory.Rows.Spares()
}

// prepareEndpoints reserves slots for endpoints that are new or have another backend.
func (p *Publication) prepareEndpoints() bool {
	r := p.revision.Places
	for _, endpoints := range []map[endpointKey]natEndpoint{r.endpoints, r.removedEndpoints} {
		for key, e := range endpoints {
			if _, removed := r.removedEndpoints[key]; removed {
				e = r.previousOf(e)
			}
			s := slotValue[natEndpoint]{key: key.slot(), content: e,
				in: p.memory.endpoints[mapmem.Family(key.address.Addr())]}
			value := e.value()
			s.inPlace = sameButService(s.in.Value(s.key), &value)
			ok := true
			if !s.inPlace {
				s.slot, ok = s.in.Reserve(s.key)
			}
			if !ok {
				return false
			}
			p.endpoints = append(p.endpoints, s)
		}
	}
	return true
}

// serviceWord is the word of an endpoint that holds its service.
const serviceWord = 3

// sameButService reports whether an existing endpoint differs in its service only.
func sameButService(current mapmem.Storage, value *objects.XDPEndpoint) bool {
	if current == nil {
		return false
	}
	for i, word := range mapmem.WordsOf(value) {
		if i != serviceWord && current.Load(uint32(i)) != word {
			return false
		}
	}
	return true
}

// prepareAddresses reserves slots for addresses that become a VIP's or a backend's.
func (p *Publication) prepareAddresses() bool {
	m, ok := p.memory, true
	seen := map[netip.Addr]bool{}
	for _, s := range p.revision.services {
		if vip := s.after.Key.VIP; s.before == nil && m.vips[vip] == 0 && !seen[vip] && !m.Pool.Has(vip) {
			seen[vip] = true
			ok = ok && reserveAddress(&p.vips, m.services[mapmem.Family(vip)], vip)
		}
	}
	seen = map[netip.Addr]bool{}
	for key := range p.revision.Places.endpoints {
		if address := key.address.Addr(); m.backendAddresses[address] == 0 && !seen[address] {
			seen[address] = true
			ok = ok && reserveAddress(&p.backendAddresses, m.endpoints[mapmem.Family(address)], address)
		}
	}
	return ok
}

func reserveAddress(to *[]slotValue[netip.Addr], in *mapmem.Directory, address netip.Addr) bool {
	slot, ok := in.Reserve(vipKey(address))
	if ok {
		*to = append(*to, slotValue[netip.Addr]{key: vipKey(address), content: address, in: in, slot: slot})
	}
	return ok
}

// Publish runs the second phase: a value is written before the references to it.
func (p *Publication) Publish() {
	p.PublishRows(p.Rows)
	p.publishEndpoints()
	p.publishAddresses()
	for i := range p.services {
		p.memory.publishService(&p.services[i])
	}
	for _, before := range p.revision.removed {
		p.memory.remove(before)
	}
	p.memory.removePrevious(p.revision)
	p.PublishRows(p.removed)
}

func (p *Publication) PublishRows(list []row) {
	for i := range list {
		p.memory.Rows.Set(list[i].index, &list[i].value, p.memory.Grace)
	}
}

func (p *Publication) publishEndpoints() {
	for i := range p.endpoints {
		e := &p.endpoints[i]
		value := e.content.value()
		if e.inPlace {
			e.in.Value(e.key).Store(serviceWord, mapmem.WordsOf(&value).Load(serviceWord))
			continue
		}
		e.in.Publish(e.key, e.slot, mapmem.WordsOf(&value), p.memory.Grace)
	}
}

// publishAddresses publishes the entries of addresses, and counts the services and endpoints that need them. An
// endpoint that goes to another backend is counted once.
func (p *Publication) publishAddresses() {
	m, vip := p.memory, objects.XDPService{Kind: uint8(objects.XDPServiceKindKIND_VIP)}
	for _, e := range p.vips {
		e.in.Publish(e.key, e.slot, mapmem.WordsOf(&vip), m.Grace)
	}
	for _, s := range p.revision.services {
		if s.before == nil {
			m.vips[s.after.Key.VIP]++
		}
	}
	for _, e := range p.backendAddresses {
		e.in.Publish(e.key, e.slot, mapmem.WordsOf(&objects.XDPEndpoint{}), m.Grace)
	}
	places := p.revision.Places.Places
	for key := range p.revision.Places.endpoints {
		_, present := places.Endpoints[key]
		_, previous := places.Previous[key]
		if !present && !previous {
			m.backendAddresses[key.address.Addr()]++
		}
	}
}

// publishService publishes a service under its key.
func (m *Memory) publishService(e *serviceEntry) {
	directory, key := m.services[mapmem.Family(e.after.Key.VIP)], e.after.slotKey()
	e.after.placement = e.placement
	if e.inPlace {
		directory.Value(key).Apply(inPlace(&e.before.placement.value, &e.after.placement.value))
		m.noteBase(e)
	} else {
		directory.Publish(key, e.slot, mapmem.WordsOf(&e.after.placement.value), m.Grace)
	}
	if e.before != nil {
		m.retire(&e.before.placement)
	}
}

// Words of a service: the blocks, the sizes, and the word with its id and flags.
const (
	currentWord = iota
	baseWord
	sizesWord
	flagsWord
)

// inPlace orders the writes that change a service whose transition alone differs. A packet reads the current block
// first and then the flags: where it finds moved slots it must find SERVICE_MOVED, too, and with a flag all that the
// flag refers to.
func inPlace(before, after *objects.XDPService) []mapmem.Step {
	to, both := mapmem.WordsOf(after), *after
	both.Flags |= before.Flags
	var steps []mapmem.Step
	if after.Flags&uint16(objects.XDPServiceFlagSERVICE_BASE) != 0 {
		steps = append(steps, mapmem.Step{At: sizesWord, Word: to[sizesWord]}, mapmem.Step{At: baseWord,
			Word: to[baseWord]})
	}
	return append(steps, mapmem.Step{At: flagsWord, Word: mapmem.WordsOf(&both)[flagsWord]},
		mapmem.Step{At: currentWord, Word: to[currentWord]},
		mapmem.Step{At: flagsWord, Word: to[flagsWord]})
}

// noteBase records when the words of the base may be overwritten with another base: not while packets may be reading
// the last one.
func (m *Memory) noteBase(e *serviceEntry) {
	e.after.placement.baseIdle = e.before.placement.baseIdle
	if e.before.placement.hasBase() && !e.after.placement.hasBase() {
		idle := new(bool)
		e.after.placement.baseIdle = idle
		m.Grace.AfterGrace(func() { *idle = true })
	}
}

// hasBase reports whether the service's flags show a base.
func (l *Placement) hasBase() bool {
	return l.value.Flags&uint16(objects.XDPServiceFlagSERVICE_BASE) != 0
}

// retire frees a service's previous extents, once no packet reads them.
func (m *Memory) retire(placement *Placement) {
	m.release(placement, func(e *mapmem.Extent) { m.Grace.AfterGrace(func() { m.arena.Free(e) }) })
}

// remove removes a service.
func (m *Memory) remove(before *Record) {
	directory := m.services[mapmem.Family(before.Key.VIP)]
	directory.Remove(before.slotKey(), m.Grace)
	m.retire(&before.placement)
	if m.vips[before.Key.VIP]--; m.vips[before.Key.VIP] == 0 {
		delete(m.vips, before.Key.VIP)
		if !m.Pool.Has(before.Key.VIP) {
			directory.Remove(vipKey(before.Key.VIP), m.Grace)
		}
	}
}

// removePrevious removes expired previous endpoints that no backend has.
func (m *Memory) removePrevious(c *Revision) {
	for _, key := range c.Places.expired {
		if _, claimed := c.Places.endpoints[key]; claimed {
			continue
		}
		address := key.address.Addr()
		directory := m.endpoints[mapmem.Family(address)]
		directory.Remove(key.slot(), m.Grace)
		if m.backendAddresses[address]--; m.backendAddresses[address] == 0 {
			delete(m.backendAddresses, address)
			directory.Remove(vipKey(address), m.Grace)
		}
	}
}

// Packets read these as words.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(objects.XDPService{})-5*8]
	_ = [1]struct{}{}[unsafe.Sizeof(objects.XDPEndpoint{})-4*8]
	_ = [1]struct{}{}[unsafe.Sizeof(objects.XDPBackend{})-mapmem.CacheLine]
	_ = [1]struct{}{}[unsafe.Offsetof(objects.XDPService{}.Id)-flagsWord*8]
	_ = [1]struct{}{}[unsafe.Offsetof(objects.XDPService{}.TableSize)-sizesWord*8]
	_ = [1]struct{}{}[unsafe.Offsetof(objects.XDPEndpoint{}.Service)-serviceWord*8]
	_ = [1]struct{}{}[unsafe.Offsetof(objects.XDPBackend{}.Index)-mapmem.NextWord*8]
)
