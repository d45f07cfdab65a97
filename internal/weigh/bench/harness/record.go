// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// firstPort is the client's port of the first flows, from number 0 on.
const firstPort = 1024

// Tuple is the flow in a packet's headers. Of each address it has the last four bytes, as a number.
type Tuple struct {
	Source, Destination         uint32
	SourcePort, DestinationPort uint16
}

// Flow returns the tuple of the n-th packet of a stream that has no recording.
func (s Stream) Flow(n uint32) Tuple {
	f := s.Frame
	bits := s.AddressBits
	if bits == 0 {
		bits = defaultAddressBits
	}
	flow := n*stride&(s.Count-1) + s.Offset
	source, destination := f.lowWords()
	t := Tuple{
		Source: binary.BigEndian.Uint32(f.Bytes[source:]), SourcePort: binary.BigEndian.Uint16(f.Bytes[f.transport:]),
		Destination:     binary.BigEndian.Uint32(f.Bytes[destination:]),
		DestinationPort: binary.BigEndian.Uint16(f.Bytes[f.transport+2:]),
	}
	address, port := &t.Source, &t.SourcePort
	if f.ToClient {
		address, port = &t.Destination, &t.DestinationPort
	}
	*address += flow & (1<<bits - 1)
	*port = uint16(firstPort + flow>>bits)
	return t
}

// Reply returns the tuple of the replies.
func (t Tuple) Reply() Tuple {
	return Tuple{t.Destination, t.Source, t.DestinationPort, t.SourcePort}
}

// Seen is a packet after a program has processed it.
type Seen struct {
	Tuple
	// To is the frame's destination: the last four bytes of its MAC address, as a number.
	To uint32
}

// Recording is a set of recorded flows for a stream.
type Recording struct {
	// base is the index of the first of them among all recorded flows.
	base   uint32
	layout xdpLayout
}

// The length of a recorded flow, and the offset of a field in it: see struct recorded.
const (
	recordedLength = 40
	recordedSeen   = 24
)

// Record sends one packet of each of the stream's first flows through a program and returns the packets that come out.
// It may send a packet of one more flow.
func (h *Harness) Record(program *ebpf.Program, s Stream, flows uint32) ([]Seen, error) {
	if flows > h.room-h.recorded {
		return nil, fmt.Errorf("recording %d flows: the harness has room for %d", flows, h.room-h.recorded)
	}
	scratch := Recording{base: h.recorded, layout: layoutOf(s.Frame)}
	if err := h.setLayout(scratch.layout); err != nil {
		return nil, err
	}
	s.Next, s.Recording = 0, &scratch
	if _, err := Uninterrupted(func() (float64, error) {
		if err := h.configure(program, s); err != nil {
			return 0, err
		}
		// Each run records the result of the previous run.
		return h.run(entryRecord, s.Frame, flows+1)
	}); err != nil {
		return nil, err
	}
	all := make([]byte, int(flows)*recordedLength)
	if err := h.access(scratch.base, all, (*ebpf.Memory).ReadAt); err != nil {
		return nil, err
	}
	seen := make([]Seen, 0, flows)
	for one := range slices.Chunk(all, recordedLength) {
		b := one[recordedSeen:]
		seen = append(seen, Seen{
			Tuple: Tuple{
				Source: binary.BigEndian.Uint32(b), Destination: binary.BigEndian.Uint32(b[4:]),
				SourcePort: binary.BigEndian.Uint16(b[8:]), DestinationPort: binary.BigEndian.Uint16(b[10:]),
			},
			To: binary.BigEndian.Uint32(b[12:]),
		})
	}
	return seen, nil
}

// StoreFlows stores flows for a stream of the frame. Their tuples replace that of the frame.
func (h *Harness) StoreFlows(f Frame, flows []Tuple) (*Recording, error) {
	if uint64(len(flows)) > uint64(h.room-h.recorded) {
		return nil, fmt.Errorf("keeping %d flows: the harness has room for %d", len(flows), h.room-h.recorded)
	}
	made := &Recording{base: h.recorded, layout: layoutOf(f)}
	source, destination := f.lowWords()
	b := slices.Clone(f.Bytes)
	all := make([]byte, len(flows)*recordedLength)
	for i, flow := range flows {
		binary.BigEndian.PutUint32(b[source:], flow.Source)
		binary.BigEndian.PutUint32(b[destination:], flow.Destination)
		binary.BigEndian.PutUint16(b[f.transport:], flow.SourcePort)
		binary.BigEndian.PutUint16(b[f.transport+2:], flow.DestinationPort)
		one := all[i*recordedLength:]
		for j, at := range made.layout.Piece {
			copy(one[j*pieceLength:(j+1)*pieceLength], b[at:at+pieceLength])
		}
	}
	if err := h.access(made.base, all, (*ebpf.Memory).WriteAt); err != nil {
		return nil, err
	}
	h.recorded += uint32(len(flows))
	return made, nil
}

// access reads or writes the recorded flows, beginning with index base.
func (h *Harness) access(base uint32, all []byte, do func(*ebpf.Memory, []byte, int64) (int, error)) error {
	memory, err := h.collection.Maps[xdpMapRecordings].Memory()
	if err == nil {
		_, err = do(memory, all, int64(base)*recordedLength)
	}
	if err != nil {
		return fmt.Errorf("reaching the recorded flows: %v", err)
	}
	return nil
}

// layoutOf returns the offsets of a frame's addresses and ports, and of the pieces that hold them.
func layoutOf(f Frame) xdpLayout {
	source, destination := f.lowWords()
	layout := xdpLayout{Source: source, Destination: destination, Ports: f.transport}
	pieces := []uint32{pieceOf(source), pieceOf(destination), pieceOf(f.transport)}
	// If a piece holds two fields, the last write of that piece must have both.
	slices.Sort(pieces)
	copy(layout.Piece[:], pieces)
	return layout
}

func (h *Harness) setLayout(layout xdpLayout) error {
	if err := h.collection.Variables[xdpVarLayout].Set(layout); err != nil {
		return fmt.Errorf("telling the harness where flows are: %v", err)
	}
	return nil
}

// Mark returns the number of kept flows. Reset drops the flows that were kept after a mark.
func (h *Harness) Mark() uint32 { return h.recorded }

// Reset is described at Mark.
func (h *Harness) Reset(mark uint32) { h.recorded = min(h.recorded, mark) }
