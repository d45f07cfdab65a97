// SPDX-License-Identifier: Apache-2.0

// Package packed reads the compressed files that are embedded in the programs.
package packed

import (
	"bytes"
	"compress/gzip"
	"io"
)

// Read decompresses a file (RFC 1952).
func Read(compressed []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
