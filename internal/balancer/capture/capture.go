// SPDX-License-Identifier: Apache-2.0

// Package capture holds the words of a packet capture: which real packets a client asks for, which parts of each it
// gets, and how both are written as a pcapng file. It does no I/O of its own.
package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// Errors that callers may test for.
var (
	// ErrBadRequest: no packet can match the request, or a bound is out of its range.
	ErrBadRequest = errors.New("bad capture request")
	// ErrNoService: the data plane has no service or backend of that name.
	ErrNoService = errors.New("no such service or backend")
	// ErrBusy: as many captures and live traces run as may run at once.
	ErrBusy = errors.New("too many captures")
)

// Bounds of a request, and its defaults.
const (
	// MaxSnap is the most bytes of a frame that a capture gets.
	MaxSnap = 9216
	// HeaderSnap is how many bytes of a frame are copied to find its headers: Ethernet with a tag, IPv6
	// with GUE, and in it IPv6 and TCP with all of its options, are 170.
	HeaderSnap = 192
	// DefaultRate and MaxRate are in packets a second.
	DefaultRate, MaxRate = 10_000, 1_000_000
	// DefaultFor and MaxFor bound a capture in time.
	DefaultFor, MaxFor = time.Minute, 24 * time.Hour
	// DefaultBytes is the default bound of the bytes of frames, as they are in the data plane.
	DefaultBytes = 1 << 30
)

// Filter says which real packets a capture takes; all conditions must hold.
type Filter struct {
	// Service is a service's name; its replies are taken, too. Backend is the name of one of its
	// backends.
	Service string `json:"service,omitempty"`
	Backend string `json:"backend,omitempty"`
	// Outcomes are names of outcomes, or the word that a group of them begins with, as "dropped"; none:
	// every outcome.
	Outcomes []string `json:"outcomes,omitempty"`
	// Ends are the packet's ends as the client sees them, as in a live trace, and the sample.
	trace.Filter
	// Family is 4 or 6, or 0 for both.
	Family int `json:"family,omitempty"`
	// Interface is the name of the interface that packets come in on; "" stands for any.
	Interface string `json:"interface,omitempty"`
}

// Request asks for a capture. Each bound that is 0 has its default.
type Request struct {
	Filter
	// Snap is how many bytes of a frame are captured; 0: its headers, without payload.
	Snap int `json:"snap,omitempty"`
	// Packets ends the capture after so many; 0: no bound.
	Packets uint64 `json:"packets,omitempty"`
	// Seconds ends the capture after so long.
	Seconds float64 `json:"seconds,omitempty"`
	// Rate is how many packets a second are taken; more are counted and left out.
	Rate uint32 `json:"rate,omitempty"`
	// Bytes ends the capture after so many bytes of frames.
	Bytes uint64 `json:"bytes,omitempty"`
}

// Complete fills in the defaults and checks the request. Error: ErrBadRequest.
func (r Request) Complete() (Request, error) {
	if r.Seconds == 0 {
		r.Seconds = DefaultFor.Seconds()
	}
	if r.Rate == 0 {
		r.Rate = DefaultRate
	}
	if r.Bytes == 0 {
		r.Bytes = DefaultBytes
	}
	return r, r.check()
}

func (r Request) check() error {
	if err := r.Filter.Check(); err != nil {
		return fmt.Errorf("%w: %v", ErrBadRequest, err)
	}
	switch {
	case r.Snap < 0 || r.Snap > MaxSnap:
		return fmt.Errorf("%w: snap length %d; use 0 (headers) to %d bytes", ErrBadRequest, r.Snap, MaxSnap)
	case r.Seconds < 0 || r.Seconds > MaxFor.Seconds():
		return fmt.Errorf("%w: a capture of %v seconds; use up to %v", ErrBadRequest, r.Seconds, MaxFor.Seconds())
	case r.Rate > MaxRate:
		return fmt.Errorf("%w: %d packets a second; use up to %d", ErrBadRequest, r.Rate, MaxRate)
	case r.Family != 0 && r.Family != 4 && r.Family != 6:
		return fmt.Errorf("%w: family %d; use 4 or 6", ErrBadRequest, r.Family)
	case r.Backend != "" && r.Service == "":
		return fmt.Errorf("%w: backend %q of which service? Name the service, too", ErrBadRequest, r.Backend)
	}
	for _, prefix := range []netip.Prefix{r.Source, r.Destination} {
		if prefix.IsValid() && r.Family != 0 && prefix.Addr().Is4() != (r.Family == 4) {
			return fmt.Errorf("%w: %s is not of IPv%d", ErrBadRequest, prefix, r.Family)
		}
	}
	return nil
}

// TraceRequest is the request of a live trace: no bytes of frames, and no bounds.
func TraceRequest(filter trace.Filter) Request {
	return Request{Filter: Filter{Filter: filter}, Snap: noFrames, Seconds: unbounded.Seconds()}
}

const (
	noFrames  = -1
	unbounded = 100 * 365 * 24 * time.Hour
)

// SnapLength is how many bytes of a frame the data plane copies.
func (r Request) SnapLength() int {
	switch r.Snap {
	case noFrames:
		return 0
	case 0:
		return HeaderSnap
	}
	return r.Snap
}

// For is how long the capture lasts.
func (r Request) For() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }

// Event is one line of a capture.
type Event struct {
	// Started is the first: from here on packets are captured.
	Started *Started `json:"started,omitempty"`
	Packet  *Packet  `json:"packet,omitempty"`
	// Counts are the counts so far, at least once a second while they rise, and those of the whole capture at its end.
	Counts *Counts `json:"counts,omitempty"`
	// Ended is why the capture has ended: the last event, unless the client hangs up.
	Ended Reason `json:"ended,omitempty"`
	// Error is the last, if it went wrong.
	Error string `json:"error,omitempty"`
}

// Reason is why a capture ended.
type Reason string

// The reasons.
const (
	// EndPackets, EndBytes and EndTime: that bound is reached.
	EndPackets Reason = "packets"
	EndBytes   Reason = "bytes"
	EndTime    Reason = "time"
	// EndClosed: the client has hung up, or the daemon stops.
	EndClosed Reason = "closed"
)

// Started describes a capture that has begun: the first object of its stream.
type Started struct {
	// ID is the number of the capture, unique for a daemon's start.
	ID uint32 `json:"id"`
	// Request is the request with its defaults.
	Request Request `json:"request"`
	// Hooks are the interfaces that packets come in on, with the hook of each.
	Hooks []Point `json:"hooks"`
	// Notes name the packets that the capture cannot show.
	Notes []string `json:"notes,omitempty"`
}

// Point is where packets are captured.
type Point struct {
	Interface string  `json:"interface"`
	Hook      lb.Hook `json:"hook"`
}

// Counts are the counts of packets that the filter matched. A GSO packet of TC is one.
type Counts struct {
	// Matched is Taken + Limited + Lost + those beyond a bound.
	Matched uint64 `json:"matched"`
	// Matched is Captured + Limited + Lost + those beyond a bound.
	Captured uint64 `json:"taken"`
	// Limited are more than the rate allows, and Lost found no room, because the client reads too slowly.
	Limited uint64 `json:"limited"`
	Lost    uint64 `json:"lost"`
	// Bytes of frames that were taken, as they were copied.
	Bytes uint64 `json:"bytes"`
}

// Packet is a captured packet: its outcome, and its bytes.
type Packet struct {
	trace.Packet
	// Count is how many packets of the wire it is: more than one for a GSO packet in TC.
	Count uint32 `json:"count"`
	// FrameIn is the frame as it came in.
	FrameIn Frame `json:"came_frame"`
	// FrameOut is the frame as it leaves; without bytes where it is dropped, or unchanged.
	FrameOut Frame `json:"leaves_frame,omitzero"`
}

// Frame is a frame, or its beginning.
type Frame struct {
	// Length is the length of the whole frame, in bytes.
	Length int `json:"length"`
	// Bytes are its first ones.
	Bytes []byte `json:"bytes"`
}

// IsZero reports whether there is none.
func (f Frame) IsZero() bool { return len(f.Bytes) == 0 }
