// SPDX-License-Identifier: Apache-2.0

package traced

import (
	"bytes"

	"github.com/jeoul/jeoul/internal/balancer/capture"
)

// Split returns the frames that follow a record, each with at most snap bytes, or its headers where that is 0. The
// frame that leaves has no bytes where it equals the one that came.
func (r *Record) Split(snap int) (came, leaves capture.Frame) {
	at := int(min(r.IngressCaptured, uint32(len(r.Frames))))
	end := at + int(min(r.EgressCaptured, uint32(len(r.Frames)-at)))
	came = capture.Truncate(r.Frames[:at], int(r.IngressLength), snap)
	if !bytes.Equal(r.Frames[:at], r.Frames[at:end]) || r.IngressLength != r.FrameLength {
		leaves = capture.Truncate(r.Frames[at:end], int(r.FrameLength), snap)
	}
	return came, leaves
}

// Counts are a slot's counters as a client sees them.
func (s *XdpCaptureState) Counts() capture.Counts {
	return capture.Counts{Matched: s.Matched, Captured: s.Taken, Limited: s.Limited, Lost: s.Lost, Bytes: s.Bytes}
}
