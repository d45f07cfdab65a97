// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// serviceProbes is how many slots the program looks at.
const serviceProbes = uint32(objects.XDPAgreementSERVICE_PROBES)

// Key is struct service_key4 or service_key6 as the words that it is compared
// by; IPv4 fills the first.
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

// hashOf is hash_service4 of bpf/balancer/hash.h, and hash_service6, which for a key with
// one word is the same.
func hashOf(k Key) uint32 {
	return uint32((k[0]*HashMultiplier + k[1]*HashMultiplier2 + k[2]*HashMultiplier3) >> 32)
}

// noKey is in the last word of a key that stands for no service, whatever the other words are: a packet's key has zeros
// where this has ones.
const noKey = ^uint64(0)

// smallestSize is the size of the smallest hash tables: in one of this size a search seldom goes beyond its first slot,
// and services can be added and removed without another program.
const smallestSize = 512

// minSize is the smallest size that is tried for n keys. Half of it is still free
// when as many come again.
func minSize(n int) uint32 { return max(PowerOfTwo(4*n), smallestSize) }

// maxSparseness bounds how many times larger than its contents a hash table may become. Only keys that were made for
// the purpose need more.
const maxSparseness = 64

// HashShift is by how much a hash is shifted right for a table of that size.
func HashShift(size uint32) uint32 { return uint32(33 - bits.Len32(size)) }

// Placement says where keys go in a hash table.
type Placement struct {
	Size uint32
	At   map[Key]uint32
}

// Place places keys in a hash table with open addressing and linear
// probing, a power of two in size and at least 2, in which no key is more than
// serviceProbes - 1 slots from where its search begins. A load of at most a quarter
// makes the first size do almost always; otherwise the table doubles.
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
	// slotFree: no search reads beyond its key, which is of zeros or of ones.
	slotFree slotState = iota
	// slotUsed: it is some key's, or will be.
	slotUsed
	// slotIdle: it was some key's, and packets may still read its value.
	slotIdle
)

// Directory is a hash table of the data plane: of services or of endpoints. It changes while packets search it: they
// always find whole elements. An element has slotWords words, first those of its key.
type Directory struct {
	memory Storage
	six    bool
	mask   uint32
	at     map[Key]uint32
	states []slotState
	// duplicates are the keys that are also in an earlier slot, which a search comes to after the valid one.
	duplicates map[Key]uint32
}

// SlotWords is the size of an element: a cache line.
const SlotWords = CacheLine / 8

// Fill puts a value under a key, in a directory that no packet searches yet.
func (d *Directory) Fill(key Key, slot uint32, value Storage) {
	d.states[slot], d.at[key] = slotUsed, slot
	copy(d.element(slot), key[:d.keyWords()])
	copy(d.element(slot)[d.keyWords():], value)
}

// NewDirectory returns an empty one, in memory that is all zeros.
func NewDirectory(memory Storage, size uint32, six bool) *Directory {
	return &Directory{memory: memory, six: six, mask: size - 1, at: map[Key]uint32{}, states: make([]slotState, size),
		duplicates: map[Key]uint32{}}
}

// Reserve finds a slot for a key, which may have another one already: one that a search comes to later, if there is
// one, because then the old one can be freed at once.
func (d *Directory) Reserve(key Key) (slot uint32, ok bool) {
	if _, waits := d.duplicates[key]; waits {
		return 0, false
	}
	start, from := hashOf(key)>>HashShift(d.mask+1), uint32(0)
	if old, there := d.at[key]; there {
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

// keyWords is how many words a key has.
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

// Value returns the words of the value of a key, nil if there is none.
func (d *Directory) Value(key Key) Storage {
	slot, ok := d.at[key]
	if !ok {
		return nil
	}
	return d.element(slot)[d.keyWords():]
}

// Publish puts a value into the slot that was reserved for its key. A search finds the key's previous value until then,
// and the new one afterwards.
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
		// A search comes to the old one first.
		d.element(old).Apply(d.hideSteps())
		later.AfterGrace(func() { d.release(old) })
		return
	}
	// A search that has passed the new one before it was there must find the old.
	d.duplicates[key] = old
	later.AfterGrace(func() {
		if slot, duplicated := d.duplicates[key]; duplicated && slot == old {
			d.element(old).Apply(d.hideSteps())
			delete(d.duplicates, key)
		}
		d.release(old)
	})
}

// Remove takes a key out.
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

// release makes a slot free. Where no search needs to go on after it, it becomes an
// empty one, and so do those before it.
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

// publishSteps returns the writes by which an element is found under a key: until the last word is written, it has no
// valid key.
func (d *Directory) publishSteps(key Key) []Step {
	if d.six {
		return []Step{{At: 2, Word: noKey}, {At: 0, Word: key[0]}, {At: 1, Word: key[1]}, {At: 2, Word: key[2]}}
	}
	return []Step{{At: 0, Word: key[0]}}
}

// hideSteps returns the writes after which no search finds an element, and searches go on past it: its key is replaced
// by an impossible one. (IPv4: the address 255.255.255.255, which no packet for us has, with port and protocol 0.)
func (d *Directory) hideSteps() []Step {
	if d.six {
		return []Step{{At: 2, Word: noKey}, {At: 0, Word: noKey}, {At: 1, Word: noKey}}
	}
	return []Step{{At: 0, Word: 0xffffffff}}
}

// clearSteps returns the writes by which a hidden element becomes an empty one, at which searches end.
func (d *Directory) clearSteps() []Step {
	if d.six {
		return []Step{{At: 1, Word: 0}, {At: 0, Word: 0}, {At: 2, Word: 0}}
	}
	return []Step{{At: 0, Word: 0}}
}
