// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"encoding/binary"
	"fmt"
)

// Slots is the number of programs that a dispatcher can run.
const Slots = 10

const (
	// magic is the first byte of a dispatcher's configuration.
	magic = 236
	// emptySlot is the action that a slot without a program returns.
	emptySlot = 31
	// frags is BPF_F_XDP_HAS_FRAGS: the program supports multi-buffer frames.
	frags = 1 << 5
)

// Supported versions of the protocol: libxdp 1.3 introduced version 2, and 1.6 version 3. Before 2, a configuration
// does not contain its version.
const (
	oldestVersion = 2
	newestVersion = 3
)

// slot has the settings of a dispatcher for one of its programs.
type slot struct {
	// actions has a bit for each XDP action after which the next program is called.
	actions uint32
	// priority is its run priority: the lowest runs first.
	priority uint32
	// flags is frags, or 0.
	flags uint32
}

// config is a dispatcher's configuration: struct dispatcher_config of bpf/libxdp/dispatcher.bpf.c, and
// "Dispatcher format" in libxdp's protocol.org. Its integers are in the machine's byte order.
type config struct {
	version byte
	// frags: the dispatcher was loaded with that flag, as all of its programs were.
	frags bool
	// bound: the dispatcher is bound to the interface's device (version 3).
	bound bool
	slots []slot
}

// sizeOf returns the size of a configuration in bytes.
func sizeOf(version byte) int {
	size := 4 + 3*4*Slots
	if version >= 3 {
		size += 4 // a byte, padded
	}
	return size
}

// decode reads a configuration. Errors: ErrForeign, ErrVersion.
func decode(data []byte) (config, error) {
	if len(data) < 4 || data[0] != magic {
		return config{},
			fmt.Errorf("%w: its configuration of %d bytes does not begin with %d, as those of libxdp 1.3 and newer do",
				ErrForeign, len(data), magic)
	}
	c := config{version: data[1], frags: data[3] != 0}
	if c.version < oldestVersion || c.version > newestVersion {
		return config{}, fmt.Errorf("%w %d: %d to %d are", ErrVersion, c.version, oldestVersion, newestVersion)
	}
	if len(data) != sizeOf(c.version) || data[2] > Slots {
		return config{},
			fmt.Errorf("%w: its configuration of version %d has %d bytes (not %d) and %d programs (at most %d)",
				ErrForeign, c.version, len(data), sizeOf(c.version), data[2], Slots)
	}
	c.bound = c.version >= 3 && data[4+3*4*Slots] != 0
	for i := range int(data[2]) {
		word := func(vector int) uint32 { return binary.NativeEndian.Uint32(data[4+4*(vector*Slots+i):]) }
		c.slots = append(c.slots, slot{actions: word(0) &^ (1 << emptySlot), priority: word(1), flags: word(2)})
	}
	return c, nil
}

// encode writes a configuration.
func (c *config) encode() []byte {
	data := make([]byte, sizeOf(c.version))
	data[0], data[1], data[2] = magic, c.version, byte(len(c.slots))
	if c.frags {
		data[3] = 1
	}
	for i, s := range c.slots {
		for vector, word := range []uint32{s.actions | 1<<emptySlot, s.priority, s.flags} {
			binary.NativeEndian.PutUint32(data[4+4*(vector*Slots+i):], word)
		}
	}
	if c.bound {
		data[4+3*4*Slots] = 1
	}
	return data
}
