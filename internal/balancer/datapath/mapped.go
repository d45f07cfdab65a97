// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// storage is memory that packets read while we write it: a word at a time, each in one
// step, in the order in which we do.
type storage []uint64

// store writes a word.
func (w storage) store(at uint32, word uint64) { atomic.StoreUint64(&w[at], word) }

// load reads a word.
func (w storage) load(at uint32) uint64 { return atomic.LoadUint64(&w[at]) }

// step is a word that is to be written.
type step struct {
	at   uint32
	word uint64
}

// follow writes words one after the other.
func (w storage) follow(steps []step) {
	for _, s := range steps {
		w.store(s.at, s.word)
	}
}

// bytes is the same memory, for what packets do not read yet, or no more.
func (w storage) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

// wordsOf returns what a struct is made of. Its size is a multiple of 8 bytes.
func wordsOf[T any](value *T) storage {
	return unsafe.Slice((*uint64)(unsafe.Pointer(value)), unsafe.Sizeof(*value)/8)
}

// elements is a vector of memory as Go sees it.
func elements[T any](w storage) []T {
	var element T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(w))), uintptr(len(w))*8/unsafe.Sizeof(element))
}

// mapped returns the memory of an array map that has BPF_F_MMAPABLE, which the
// caller unmaps. The elements follow each other; the sizes of ours are multiples of
// 8 bytes.
func mapped(m *ebpf.Map) (storage, error) {
	size := int(m.MaxEntries()) * int(m.ValueSize())
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the memory of %s (%d bytes): %v", m, size, err)
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8), nil
}

// unmap gives the mapping back; the map stays.
func (w storage) unmap() {
	if w != nil {
		_ = unix.Munmap(w.bytes())
	}
}

// storeHalf writes half of a word, by the number of the half.
func storeHalf(w storage, half uint32, value uint32) {
	atomic.StoreUint32(&elements[uint32](w)[half], value)
}
