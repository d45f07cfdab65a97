// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// serviceProbes is the number of slots that a search of the programs probes.
const serviceProbes = uint32(objects.XDPAgreementSERVICE_PROBES)

// Key is struct service_key4 or service_key6 as words, by which it is compared; IPv4 uses the first one.
type Key [3]uint64

// KeyOf returns the key of an address, port and protocol of either family.
func KeyOf(address netip.Addr, port uint16, protocol uint8) Key {
	a := OfAddress(address)
	if address.Is4() {
		return Key{uint64(a[0]) | uint64(NetworkOrder(port))<<32 | uint64(protocol)<<48}
	}
	return Key{uint64(a[0]) | uint64(a[1])<<32, uint64(a[2]) | uint64(a[3])<<32,
		uint64(NetworkOrder(port)) | uint64(protocol)<<16}
}

// hashOf is hash_service6 of bpf/balancer/hash.h, and hash_service4, which is the same for a key of one word.
func hashOf(k Key) uint32 {
	return uint32((k[0]*HashMultiplier + k[1]*HashMultiplier2 + k[2]*HashMultiplier3) >> 32)
}

// noKey in the last word makes a key impossible, whatever the other words are: a packet's key has zeros where noKey has
// ones.
const noKey = ^uint64(0)

// smallestSize is the size of the smallest hash tables: in these a search seldom probes a second slot, and services can
// be added without loading another program.
const smallestSize = 512

// minSize returns the first size to try for n keys. Half of it stays free when the number of keys doubles.
func minSize(n int) uint32 { return max(PowerOfTwo(4*n), smallestSize) }

// maxSparseness bounds the size of a hash table, in multiples of minSize. Only keys constructed to collide need more.
const maxSparseness = 64

// HashShift returns by how many bits a hash is shifted right for a table of that size.
func HashShift(size uint32) uint32 { return uint32(33 - bits.Len32(size)) }

// Placement has the size of a hash table and the slots of its keys.
type Placement struct {
	Size uint32
	At   map[Key]uint32
}

// Place places keys in a hash table with open addressing and linear probing, whose size is a power of two, such that a
// search for any key probes at most serviceProbes slots. At a load of at most a quarter the first size almost always
// suffices; otherwise the table doubles.
func Place(keys []Key) (Placement, error) {
	least := minSize(len(keys))
	for size := least; size <= maxSparseness*least; size *= 2 {
		if p, ok := placeAll(keys, size); ok {
			return p, nil
		}
	}
	return Placement{},
		fmt.Errorf("the addresses and ports of %d services fall on each other in a hash table of %d slots",
			len(keys), maxSparseness*least)
}

func placeAll(keys []Key, size uint32) (Placement, bool) {
	p := Placement{size, make(map[Key]uint32, len(keys))}
	d := NewDirectory(nil, size, false)
	for _, key := range keys {
		slot, ok := d.Reserve(key)
		if !ok {
			return Placement{}, false
		}
		p.At[key] = slot
	}
	return p, true
}

// slotState is the control plane's state of a slot of a directory.
type slotState uint8

const (
	// slotFree: the slot is empty or hidden, and no packet reads its value.
	slotFree slotState = iota
	// slotUsed: the slot has a key, or is reserved for one.
	slotUsed
	// slotIdle: the slot had a key, and packets may still be reading its value.
	slotIdle
)

// Directory is a hash table of the data plane: of services or of endpoints. It changes while packets search it, which
// always find complete elements. An element has SlotWords words, the key first.
type Directory struct {
	memory Storage
	six    bool
	mask   uint32
	at     map[Key]uint32
	states []slotState
	// duplicates has the previous slots of keys that are still in it, and that a search probes after the valid slot.
	duplicates map[Key]uint32
}

// SlotWords is the size of an element: a cache line.
const SlotWords = CacheLine / 8

// Fill writes a key and its value, in a directory that no packet searches yet.
func (d *Directory) Fill(key Key, slot uint32, value Storage) {
	d.states[slot], d.at[key] = slotUsed, slot
	copy(d.element(slot), key[:d.keyWords()])
	copy(d.element(slot)[d.keyWords():], value)
}

// NewDirectory returns an empty directory, in zeroed memory.
func NewDirectory(memory Storage, size uint32, six bool) *Directory {
	return &Directory{memory: memory, six: six, mask: size - 1, at: map[Key]uint32{}, states: make([]slotState, size),
		duplicates: map[Key]uint32{}}
}

// Reserve reserves a slot for a key, which may have a slot already: if possible one that a search probes later, because
// then the old one can be hidden at once.
func (d *Directory) Reserve(key Key) (slot uint32, ok bool) {
	if _, waits := d.duplicates[key]; waits {
		return 0, false
	}
	start, from := hashOf(key)>>HashShift(d.mask+1), uint32(0)
	if old, found := d.at[key]; found {
		from = (old - start) & d.mask
	}
	for probe := range serviceProbes {
		if slot := (start + (from+probe)%serviceProbes) & d.mask; d.states[slot] == slotFree {
			d.states[slot] = slotUsed
			return slot, true
		}
	}
	return 0, false
}

// Cancel undoes a reservation.
func (d *Directory) Cancel(slot uint32) { d.states[slot] = slotFree }

// keyWords returns the number of words of a key.
func (d *Directory) keyWords() uint32 {
	if d.six {
		return 3
	}
	return 1
}

// element returns the words of a slot.
func (d *Directory) element(slot uint32) Storage {
	return d.memory[slot*SlotWords:][:SlotWords]
}

// Value returns the value of a key, nil if there is none.
func (d *Directory) Value(key Key) Storage {
	slot, ok := d.at[key]
	if !ok {
		return nil
	}
	return d.element(slot)[d.keyWords():]
}

// Publish writes a key and its value into the reserved slot. A search finds the key's previous value until then, and
// the new one afterwards.
func (d *Directory) Publish(key Key, slot uint32, value Storage, later *Grace) {
	element := d.element(slot)
	for i, word := range value {
		element.Store(d.keyWords()+uint32(i), word)
	}
	element.Apply(d.publishSteps(key))
	old, replaced := d.at[key]
	d.at[key] = slot
	if !replaced {
		return
	}
	d.states[old] = slotIdle
	if start := hashOf(key) >> HashShift(d.mask+1); (slot-start)&d.mask > (old-start)&d.mask {
		// A search probes the old slot first.
		d.element(old).Apply(d.hideSteps())
		later.AfterGrace(func() { d.release(old) })
		return
	}
	// A search that probed the new slot before the key was there must find the old one.
	d.duplicates[key] = old
	later.AfterGrace(func() {
		if slot, duplicated := d.duplicates[key]; duplicated && slot == old {
			d.element(old).Apply(d.hideSteps())
			delete(d.duplicates, key)
		}
		d.release(old)
	})
}

// Remove removes a key.
func (d *Directory) Remove(key Key, later *Grace) {
	slot, ok := d.at[key]
	if !ok {
		return
	}
	delete(d.at, key)
	if old, duplicated := d.duplicates[key]; duplicated {
		d.element(old).Apply(d.hideSteps())
		delete(d.duplicates, key)
	}
	d.element(slot).Apply(d.hideSteps())
	d.states[slot] = slotIdle
	later.AfterGrace(func() { d.release(slot) })
}

// release frees a slot. If the next slot is empty, it becomes empty, too, and so do the free slots before it.
func (d *Directory) release(slot uint32) {
	d.states[slot] = slotFree
	for d.states[slot] == slotFree && d.isEmpty((slot+1)&d.mask) && !d.isEmpty(slot) {
		d.element(slot).Apply(d.clearSteps())
		slot = (slot - 1) & d.mask
	}
}

// isEmpty reports whether searches end at a slot.
func (d *Directory) isEmpty(slot uint32) bool {
	element := d.element(slot)
	return element.Load(0) == 0 && (!d.six || element.Load(1) == 0)
}

// publishSteps returns the writes that publish an element's key, which is invalid until the last one.
func (d *Directory) publishSteps(key Key) []Step {
	if d.six {
		return []Step{{At: 2, Word: noKey}, {At: 0, Word: key[0]}, {At: 1, Word: key[1]}, {At: 2, Word: key[2]}}
	}
	return []Step{{At: 0, Word: key[0]}}
}

// hideSteps returns the writes that replace an element's key by an impossible one, so that searches skip the element.
// (IPv4: the address 255.255.255.255, which no balanced packet has, with port and protocol 0.)
func (d *Directory) hideSteps() []Step {
	if d.six {
		return []Step{{At: 2, Word: noKey}, {At: 0, Word: noKey}, {At: 1, Word: noKey}}
	}
	return []Step{{At: 0, Word: 0xffffffff}}
}

// clearSteps returns the writes that make a hidden element empty, so that searches end there.
func (d *Directory) clearSteps() []Step {
	if d.six {
		return []Step{{At: 1, Word: 0}, {At: 0, Word: 0}, {At: 2, Word: 0}}
	}
	return []Step{{At: 0, Word: 0}}
}
