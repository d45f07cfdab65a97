// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"io"
)

// File is the destination of a capture, as an *os.File.
type File interface {
	io.Writer
	Truncate(size int64) error
}

// WholePackets keeps a file whole where there is no room for more: bytes written since Mark are cut off again, for
// readers refuse a file that ends within a packet.
type WholePackets struct {
	File File
	// size is the number of bytes written, and whole how many of them are to stay.
	size, whole int64
}

// Write writes to the file.
func (w *WholePackets) Write(b []byte) (int, error) {
	n, err := w.File.Write(b)
	if w.size += int64(n); err != nil && w.size > w.whole {
		err = errors.Join(err, w.File.Truncate(w.whole))
	}
	return n, err
}

// Mark says that the file is whole as it is now.
func (w *WholePackets) Mark() { w.whole = w.size }
