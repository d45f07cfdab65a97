// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// now returns the time of the programs' clock, in ns.
func now() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(ts.Nano()), nil
}

// interval returns the time between two items of a rate, in ns << WIRE_FRACTION; 0 for a rate of 0.
func interval(rate float64) uint64 {
	if rate <= 0 {
		return 0
	}
	return uint64(math.Round(1e9 * (1 << 20) / rate))
}

// tick is 2^WIRE_TICK ns.
const tick = time.Duration(1 << 20)

// take copies a load into the programs' memory, while nothing is sent.
func (c *bpfWireControl) take(l Load) error {
	keep := *c
	*c = bpfWireControl{FollowId: keep.FollowId, Stopped: 1, OpenTo: keep.OpenTo, First: keep.First,
		FloodTo: keep.FloodTo}
	c.Request, c.Response, c.Frame = uint32(l.Request), uint32(l.Response), uint32(l.Frame)
	c.Timeout, c.Tries = uint32(max(l.Timeout/tick, 1)), uint32(l.Tries)
	c.Outstanding = uint32(l.Outstanding)
	c.RequestAtOnce = flag(l.Kind == Mix || l.Kind == Session && l.Request > 0)
	c.Keep = flag(l.Kind == Capacity)
	c.CountSessions = flag(l.Kind == Session || l.Kind == Mix)
	for i := range c.Content {
		c.Content[i] = 'x'
	}
	copy(c.Content[:], l.Content)
	switch l.Kind {
	case UDP:
		c.Kind = bpfWireKindWIRE_UDP
	case DNS:
		message, question, err := query(l.Question)
		if err != nil {
			return err
		}
		c.Kind, c.Question, c.Request = bpfWireKindWIRE_DNS, uint32(question), uint32(len(message))
		copy(c.Content[:], message)
	case Mix:
		c.Mixed, c.Response, c.Sizes = 1, longest, sizes(l.Sizes)
	}
	copy(c.Head[:], head(int(c.Response)))
	if l.Flood != nil {
		c.takeFlood(*l.Flood)
	}
	return nil
}

func (c *bpfWireControl) takeFlood(f Flood) {
	c.FloodPort = uint32(f.From)
	c.FloodSource = nativeIPv4(f.Sources.Masked().Addr())
	wild := ^uint32(0) >> f.Sources.Bits()
	if f.Sources.Bits() >= 32 {
		wild = 0
	}
	c.FloodWild = binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, wild))
}

// headLength is WIRE_HEAD of bpf/wire/types.h.
const headLength = 256

// head returns the beginning of a response of a length: as of HTTP, where there is room for that, so that an HTTP
// client accepts it; otherwise filler.
func head(response int) []byte {
	filler := make([]byte, headLength)
	for i := range filler {
		filler[i] = 'x'
	}
	// The header's length depends on the digits of the body's.
	for body := response; body >= 0 && body > response-headLength; body-- {
		text := fmt.Sprintf(
			"HTTP/1.1 200 OK\r\nServer: jeoul\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", body)
		if len(text)+body == response {
			copy(filler, text)
			break
		}
	}
	return filler
}

// sizes assigns a size to each of the programs' places, by the shares.
func sizes(mix []Size) (places [256]uint32) {
	total := 0.0
	for _, s := range mix {
		total += s.Share
	}
	at, until := 0, 0.0
	for i := range places {
		for at < len(mix)-1 && (float64(i)+0.5)/float64(len(places)) >= (until+mix[at].Share)/total {
			until += mix[at].Share
			at++
		}
		places[i] = uint32(mix[at].Bytes)
	}
	return places
}

// begin makes the sender begin connections up to a number, from a moment on.
func (t *Tester) begin(to, first uint64, rate float64, start uint64) {
	c := t.control
	// While no client waits, all connections that were begun are answered.
	p := t.senderProgress()
	atomic.StoreUint64(&t.shared.Answered, p.Opened-p.NoAnswer-p.Checksum)
	atomic.StoreUint64(&t.progress.Behind, 0)
	atomic.StoreUint64(&c.First, first)
	atomic.StoreUint64(&c.Start, start)
	atomic.StoreUint64(&c.Interval, interval(rate))
	atomic.StoreUint64(&c.OpenTo, to)
}

// follow makes the follower perform an action on the connections from one number to another, `lag` behind the opener.
func (t *Tester) follow(action bpfWireAction, from, to, lag uint64, rate float64) error {
	c := t.control
	start, err := now()
	if err != nil {
		return err
	}
	atomic.StoreUint32((*uint32)(&c.Action), uint32(bpfWireActionWIRE_NOTHING))
	atomic.StoreUint64(&c.FollowFrom, from)
	atomic.StoreUint64(&c.FollowTo, to)
	atomic.StoreUint64(&c.Lag, lag)
	atomic.StoreUint64(&c.FollowStart, start)
	atomic.StoreUint64(&c.FollowInterval, interval(rate))
	atomic.AddUint32(&c.FollowId, 1)
	atomic.StoreUint32((*uint32)(&c.Action), uint32(action))
	return nil
}

// flood makes the sender send a flood from now on, up to a number of frames.
func (t *Tester) flood(frames uint64, rate float64, start uint64) {
	c := t.control
	first := t.senderProgress().Flooded
	to := first + frames
	if to < first {
		to = math.MaxUint64
	}
	atomic.StoreUint64(&c.FloodFirst, first)
	atomic.StoreUint64(&c.FloodStart, start)
	atomic.StoreUint64(&c.FloodInterval, interval(rate))
	atomic.StoreUint64(&c.FloodTo, to)
}

// endFlood ends the flood.
func (t *Tester) endFlood() { atomic.StoreUint64(&t.control.FloodTo, 0) }
