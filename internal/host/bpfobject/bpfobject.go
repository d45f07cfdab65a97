// SPDX-License-Identifier: Apache-2.0

// Package bpfobject reads the eBPF objects that are embedded in this program. They are compressed, by a factor of
// five: without that they would be 6 MB of the program.
package bpfobject

import (
	"bytes"
	"fmt"
	"io"

	"github.com/jeoul/jeoul/internal/text/packed"
)

// Open decompresses an object (RFC 1952), for ebpf.LoadCollectionSpecFromReader. An error is returned by the first
// read. scripts/bpf2go.sh makes generated code call it.
func Open(compressed []byte) io.ReaderAt {
	object, err := packed.Read(compressed)
	if err != nil {
		return unreadable{fmt.Errorf("decompress an embedded eBPF object: %w", err)}
	}
	return bytes.NewReader(object)
}

// unreadable fails each read.
type unreadable struct{ err error }

func (u unreadable) ReadAt([]byte, int64) (int, error) { return 0, u.err }
