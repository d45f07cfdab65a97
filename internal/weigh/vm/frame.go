// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// FrameKind is the kind of a frame's content.
type FrameKind byte

// The kinds of frames. All but FrameInterrupt go from the machine to the outside.
const (
	// FrameHello is the first frame, from a machine that is about to start its job. Its payload is an encoded Hello.
	FrameHello FrameKind = 'H'
	// FrameLine is a line that the job printed, without its line end.
	FrameLine FrameKind = 'L'
	// FrameResult is the complete file that the job leaves, in its present state.
	FrameResult FrameKind = 'R'
	// FrameEnd is the last frame: the job's End, encoded.
	FrameEnd FrameKind = 'E'
	// FrameInterrupt asks the machine to end its job in an orderly way. It has no payload.
	FrameInterrupt FrameKind = 'I'
)

// Frame is a message over the serial port. On the wire it is: its kind; the length of
// its payload, 4 bytes in network byte order; the payload; and the CRC-32 (IEEE) of
// all of these, 4 bytes in network byte order.
type Frame struct {
	Kind    FrameKind
	Payload []byte
}

// maxPayload bounds the length that a frame may claim: a result of many thousand trials takes some MiB.
const maxPayload = 64 << 20

// frameHead is the length of a frame before its payload.
const frameHead = 5

// WriteFrame writes a frame in one write.
func WriteFrame(w io.Writer, f Frame) error {
	if len(f.Payload) > maxPayload {
		return fmt.Errorf("%w: a payload of %d bytes; %d are possible", ErrFrame, len(f.Payload), maxPayload)
	}
	wire := make([]byte, frameHead, frameHead+len(f.Payload)+crc32.Size)
	wire[0] = byte(f.Kind)
	binary.BigEndian.PutUint32(wire[1:], uint32(len(f.Payload)))
	wire = append(wire, f.Payload...)
	wire = binary.BigEndian.AppendUint32(wire, crc32.ChecksumIEEE(wire))
	_, err := w.Write(wire)
	return err
}

// Reader reads frames.
type Reader struct{ from *bufio.Reader }

// NewReader reads frames from r, ahead of its callers.
func NewReader(r io.Reader) *Reader { return &Reader{bufio.NewReader(r)} }

// Next returns the next frame; io.EOF where the stream ends between two frames. Its error wraps ErrFrame where the
// bytes are no frame; after that, the next frame cannot be found.
func (r *Reader) Next() (Frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return Frame{}, describeEOF(err, "its head")
	}
	kind, length := FrameKind(head[0]), binary.BigEndian.Uint32(head[1:])
	switch kind {
	case FrameHello, FrameLine, FrameResult, FrameEnd, FrameInterrupt:
	default:
		return Frame{}, fmt.Errorf("%w: kind %#x", ErrFrame, head[0])
	}
	if length > maxPayload {
		return Frame{}, fmt.Errorf("%w: it claims %d bytes; %d are possible", ErrFrame, length, maxPayload)
	}
	// The buffer grows with the bytes received, because a length may be wrong.
	var payload bytes.Buffer
	if _, err := io.CopyN(&payload, r.from, int64(length)); err != nil {
		return Frame{}, describeEOF(unexpectedEOF(err), "its payload")
	}
	var sum [crc32.Size]byte
	if _, err := io.ReadFull(r.from, sum[:]); err != nil {
		return Frame{}, describeEOF(unexpectedEOF(err), "its checksum")
	}
	want := crc32.Update(crc32.ChecksumIEEE(head[:]), crc32.IEEETable, payload.Bytes())
	if got := binary.BigEndian.Uint32(sum[:]); got != want {
		return Frame{}, fmt.Errorf("%w: its checksum is %08x, not %08x", ErrFrame, got, want)
	}
	return Frame{kind, payload.Bytes()}, nil
}

// unexpectedEOF turns the end of a stream into an unexpected one.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// describeEOF names the place where a stream ended in the middle of a frame.
func describeEOF(err error, where string) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the stream ended in %s", ErrFrame, where)
	}
	return err
}
