// SPDX-License-Identifier: Apache-2.0

package traced

import (
	"bytes"

	"github.com/jeoul/jeoul/internal/balancer/capture"
)

// Split returns the frames that follow a record, each with at most snap bytes, or its headers if snap is 0. The
// outgoing frame has no bytes if it equals the incoming one.
func (r *Record) Split(snap int) (in, out capture.Frame) {
	at := int(min(r.IngressCaptured, uint32(len(r.Frames))))
	end := at + int(min(r.EgressCaptured, uint32(len(r.Frames)-at)))
	in = capture.Truncate(r.Frames[:at], int(r.IngressLength), snap)
	if !bytes.Equal(r.Frames[:at], r.Frames[at:end]) || r.IngressLength != r.FrameLength {
		out = capture.Truncate(r.Frames[at:end], int(r.FrameLength), snap)
	}
	return in, out
}

// Counts returns a slot's counters.
func (s *XdpCaptureState) Counts() capture.Counts {
	return capture.Counts{Matched: s.Matched, Captured: s.Taken, Limited: s.Limited, Lost: s.Lost, Bytes: s.Bytes}
}
