// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// recording is a set of flows that were recorded.
type recording struct {
	// base is where they begin among all that were.
	base   uint32
	layout xdpLayout
}

// record sends a request through flows and notes the addresses and ports that
// the program gives each; then it makes them into the pieces of their replies.
func (h *harness) record(program *ebpf.Program, request, reply frame, flows uint32) (recording, error) {
	made := recording{base: h.recorded, layout: layoutOf(request, reply)}
	if err := h.setLayout(made.layout); err != nil {
		return made, err
	}
	if _, err := uninterrupted(func() (float64, error) {
		if err := h.aim(program, request, flow{count: flows, base: made.base}); err != nil {
			return 0, err
		}
		// Each run notes what became of the one before.
		return h.run(entryRecord, request, flows+1)
	}); err != nil {
		return made, err
	}
	h.recorded += flows
	return made, h.turn(made, reply, flows)
}

// layoutOf returns where a request's addresses and ports are, and which pieces
// of a reply hold them.
func layoutOf(request, reply frame) xdpLayout {
	source, destination := request.lowWords()
	layout := xdpLayout{Source: source, Destination: destination, Ports: request.transport}
	source, destination = reply.lowWords()
	pieces := []uint32{pieceOf(source), pieceOf(destination), pieceOf(reply.transport)}
	// Of a piece that holds two, the last one written must have both.
	slices.Sort(pieces)
	copy(layout.Piece[:], pieces)
	return layout
}

func (h *harness) setLayout(layout xdpLayout) error {
	if err := h.collection.Variables[xdpVarLayout].Set(layout); err != nil {
		return fmt.Errorf("telling the harness where flows are: %v", err)
	}
	return nil
}

// Offsets in struct recorded.
const (
	recordedLength = 40
	recordedSource = 24
)

// turn makes replies of what was recorded: source and destination change places.
func (h *harness) turn(made recording, reply frame, flows uint32) error {
	memory, err := h.collection.Maps[xdpMapRecordings].Memory()
	if err != nil {
		return fmt.Errorf("reading the recorded flows: %v", err)
	}
	all := make([]byte, int(flows)*recordedLength)
	if _, err := memory.ReadAt(all, int64(made.base)*recordedLength); err != nil {
		return fmt.Errorf("reading the recorded flows: %v", err)
	}
	source, destination := reply.lowWords()
	b := slices.Clone(reply.bytes)
	for one := range slices.Chunk(all, recordedLength) {
		from := one[recordedSource:]
		if port := binary.BigEndian.Uint16(from[8:]); port == 0 {
			return fmt.Errorf("recording the flows: the balancer made nothing of one of %d", flows)
		}
		copy(b[destination:destination+4], from[0:4])
		copy(b[source:source+4], from[4:8])
		copy(b[reply.transport+2:reply.transport+4], from[8:10])
		copy(b[reply.transport:reply.transport+2], from[10:12])
		for i, at := range made.layout.Piece {
			copy(one[i*pieceLength:(i+1)*pieceLength], b[at:at+pieceLength])
		}
	}
	_, err = memory.WriteAt(all, int64(made.base)*recordedLength)
	return err
}
