// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mapping is the memory of an array map that this process shares with the programs.
type mapping []byte

func mapMemory(m *ebpf.Map) (mapping, error) {
	// An array's elements are at multiples of 8 bytes, its memory of whole pages.
	size := int(m.MaxEntries()) * int((m.ValueSize()+7)/8*8)
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the memory of %s: %w", m, err)
	}
	return b, nil
}

func (m mapping) unmap() {
	if m != nil {
		_ = unix.Munmap(m)
	}
}

// first returns the map's only element. Fields that programs read while this process writes them are written by
// sync/atomic.
func first[T any](m mapping) *T { return (*T)(unsafe.Pointer(unsafe.SliceData(m))) }
