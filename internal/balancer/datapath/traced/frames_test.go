// SPDX-License-Identifier: Apache-2.0

package traced

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/capture"
)

// FuzzRecord reads records of any bytes.
func FuzzRecord(f *testing.F) {
	f.Add(make([]byte, binary.Size(XdpTraceRecord{})), 0)
	f.Add(bytes.Repeat([]byte{0xff}, binary.Size(XdpTraceRecord{})+300), 60)
	f.Fuzz(func(t *testing.T, raw []byte, snap int) {
		record, err := decode(raw)
		if err != nil {
			return
		}
		came, leaves := record.Split(min(max(snap, 0), capture.MaxSnap))
		if len(came.Bytes)+len(leaves.Bytes) > len(record.Frames) {
			t.Errorf("frames of %d and %d bytes, of %d", len(came.Bytes), len(leaves.Bytes), len(record.Frames))
		}
	})
}
