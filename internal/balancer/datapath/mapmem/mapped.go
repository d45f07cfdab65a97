// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Storage is memory that packets read while this process writes it: word by word, each atomically, and in order.
type Storage []uint64

// Store writes a word, after all earlier writes: sync/atomic stores with release semantics at least. A program that
// reads the word orders its later reads by READ_AFTER of bpf/lib/order.h.
func (w Storage) Store(at uint32, word uint64) { atomic.StoreUint64(&w[at], word) }

// Load reads a word, before all later reads: sync/atomic loads with acquire semantics at least.
func (w Storage) Load(at uint32) uint64 { return atomic.LoadUint64(&w[at]) }

// Step is the write of a word.
type Step struct {
	At   uint32
	Word uint64
}

// Apply writes the words of steps one after the other.
func (w Storage) Apply(steps []Step) {
	for _, s := range steps {
		w.Store(s.At, s.Word)
	}
}

// Bytes returns the memory as bytes, for parts that packets do not read yet, or any more.
func (w Storage) Bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

// WordsOf returns the memory of a struct, whose size is a multiple of 8 bytes, as words.
func WordsOf[T any](value *T) Storage {
	return unsafe.Slice((*uint64)(unsafe.Pointer(value)), unsafe.Sizeof(*value)/8)
}

// ElementsOf returns the memory as a slice of structs.
func ElementsOf[T any](w Storage) []T {
	var element T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(w))), uintptr(len(w))*8/unsafe.Sizeof(element))
}

// Map maps the memory of an array map with BPF_F_MMAPABLE, which the caller unmaps. The elements are contiguous; the
// sizes of ours are multiples of 8 bytes.
func Map(m *ebpf.Map) (Storage, error) {
	size := int(m.MaxEntries()) * int(m.ValueSize())
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the memory of %s (%d bytes): %v", m, size, err)
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8), nil
}

// Unmap unmaps the memory; the map stays.
func (w Storage) Unmap() {
	if w != nil {
		_ = unix.Munmap(w.Bytes())
	}
}

// StoreHalf writes half of a word, by the number of the half.
func StoreHalf(w Storage, half uint32, value uint32) {
	atomic.StoreUint32(&ElementsOf[uint32](w)[half], value)
}

// SameMap reports whether two handles are of the same map.
func SameMap(a, b *ebpf.Map) bool {
	one, errA := a.Info()
	two, errB := b.Info()
	if errA != nil || errB != nil {
		return false
	}
	idA, _ := one.ID()
	idB, _ := two.ID()
	return idA == idB
}
