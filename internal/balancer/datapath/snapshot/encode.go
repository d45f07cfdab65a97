// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"sync"

	fast "github.com/segmentio/encoding/json"
	"golang.org/x/sync/errgroup"
)

// A snapshot is a line of JSON for the head, one for each service, and one with the checksum of the lines before, so
// that only changed services are encoded again.

// castagnoli is the polynomial of CRC-32C, which processors compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFollowed: a line has more than one value.
var errFollowed = errors.New("something follows it")

// tail is the last line of a snapshot.
type tail struct {
	// Checksum is the CRC-32C of all before its line.
	Checksum uint32 `json:"crc32c"`
}

// scratches are buffers for lines of unknown length.
var scratches = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Line returns the line of a service.
func (s *Service) Line() ([]byte, error) {
	scratch := scratches.Get().(*bytes.Buffer)
	defer scratches.Put(scratch)
	scratch.Reset()
	if err := json.NewEncoder(scratch).Encode(s); err != nil {
		return nil, encodeError(err)
	}
	return bytes.Clone(scratch.Bytes()), nil
}

func line(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, encodeError(err)
	}
	return append(data, '\n'), nil
}

func encodeError(err error) error {
	return fmt.Errorf("encoding the snapshot of the data plane: %w", err)
}

// Parts are the lines of a snapshot in order. The lines of unchanged services are shared with the previous snapshot.
type Parts [][]byte

// Encode returns a snapshot with a head and the lines of its services.
func Encode(h Head, services [][]byte) (Parts, error) {
	h.Format, h.Version, h.Lines = format, Version, len(services)
	first, err := line(h)
	if err != nil {
		return nil, err
	}
	parts := append(append(make(Parts, 0, len(services)+2), first), services...)
	sum := uint32(0)
	for _, part := range parts {
		sum = crc32.Update(sum, castagnoli, part)
	}
	last, err := line(tail{sum})
	return append(parts, last), err
}

// Bytes returns the snapshot in one piece.
func (p Parts) Bytes() []byte { return slices.Concat(p...) }

// Size is its length in bytes.
func (p Parts) Size() (n int64) {
	for _, part := range p {
		n += int64(len(part))
	}
	return n
}

// chunk is the size of the write buffer.
const chunk = 256 << 10

// WriteTo writes the snapshot, in few system calls.
func (p Parts) WriteTo(w io.Writer) (int64, error) {
	buffered := bufio.NewWriterSize(w, chunk)
	for _, part := range p {
		if _, err := buffered.Write(part); err != nil {
			return 0, err
		}
	}
	return p.Size(), buffered.Flush()
}

// Decode reads a snapshot. Errors: ErrDamaged, ErrVersion.
func Decode(data []byte) (*Snapshot, error) {
	head, rest, err := decodeHead(data)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Head: *head}
	if s.Lines < 0 || s.Lines > bytes.Count(rest, []byte{'\n'}) {
		return nil, damaged("it ends early: of %d services it has %d lines", s.Lines, bytes.Count(rest, []byte{'\n'}))
	}
	s.Services = make([]Service, s.Lines)
	if rest, err = decodeServices(rest, s.Services); err != nil {
		return nil, damaged("%v", err)
	}
	var end tail
	if err := decodeStrict(rest, &end); err != nil {
		return nil, damaged("its end: %v", err)
	}
	if sum := crc32.Checksum(data[:len(data)-len(rest)], castagnoli); sum != end.Checksum {
		return nil, damaged("its checksum is %08x, and it says %08x", sum, end.Checksum)
	}
	if err := s.check(); err != nil {
		return nil, damaged("%v", err)
	}
	return s, nil
}

// DecodeHead reads the head of a snapshot, without checking the rest. Errors: ErrDamaged,
// ErrVersion.
func DecodeHead(data []byte) (*Head, error) {
	head, _, err := decodeHead(data)
	return head, err
}

// decodeHead reads the head of a snapshot, and returns the rest.
func decodeHead(data []byte) (*Head, []byte, error) {
	text, rest, _ := bytes.Cut(data, []byte{'\n'})
	// A newer version may have other fields: so the version is checked first.
	var version struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, nil, damaged("its head: %v", err)
	}
	switch {
	case version.Format != format:
		return nil, nil, damaged("its format is %q, not %q", version.Format, format)
	case version.Version < oldest || version.Version > Version:
		return nil, nil, fmt.Errorf("%w: its version is %d, and this jeoul reads %d to %d", ErrVersion, version.Version,
			oldest, Version)
	}
	head := &Head{}
	if err := decodeStrict(text, head); err != nil {
		return nil, nil, damaged("its head: %v", err)
	}
	return head, rest, nil
}

// damaged returns ErrDamaged with the fault.
func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, a...))
}

// decodeServices reads as many lines of services, on all processors, and returns the rest.
func decodeServices(text []byte, into []Service) (rest []byte, err error) {
	const minPart = 64 // services for which another processor pays
	parts := max(min(runtime.GOMAXPROCS(0), len(into)/minPart), 1)
	var reading errgroup.Group
	for part := range parts {
		from, to := part*len(into)/parts, (part+1)*len(into)/parts
		lines := firstLines(text, to-from)
		text = text[len(lines):]
		reading.Go(func() error { return decodeLines(lines, into[from:to], from) })
	}
	return text, reading.Wait()
}

// firstLines returns that many lines, which text must have.
func firstLines(text []byte, lines int) []byte {
	end := 0
	for range lines {
		end += bytes.IndexByte(text[end:], '\n') + 1
	}
	return text[:end]
}

// decodeLines reads services, one from each line; the first has the number first. It does not use encoding/json, which
// takes four times as long: half of the time of an adoption of 10,000 services. Encoding uses encoding/json, since the
// other library writes durations in another form.
func decodeLines(lines []byte, into []Service, first int) error {
	for i := range into {
		text, rest, _ := bytes.Cut(lines, []byte{'\n'})
		trailing, err := fast.Parse(text, &into[i], fast.DisallowUnknownFields)
		if err == nil && len(trailing) > 0 {
			err = errFollowed
		}
		if err != nil {
			return fmt.Errorf("service %d: %w", first+i, err)
		}
		lines = rest
	}
	return nil
}

// decodeStrict decodes one value, and rejects unknown fields and trailing data.
func decodeStrict(data []byte, into any) error {
	decoder := strictDecoder(data)
	if err := decoder.Decode(into); err != nil {
		return err
	}
	return atEnd(decoder)
}

// strictDecoder returns a decoder that rejects unknown fields.
func strictDecoder(data []byte) *json.Decoder {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder
}

// atEnd returns an error if there is more to decode.
func atEnd(decoder *json.Decoder) error {
	if _, err := decoder.Token(); err != io.EOF {
		return errFollowed
	}
	return nil
}

// check rejects impossible values: the numbers in a snapshot are used as indices.
func (s *Snapshot) check() error {
	indices := len(s.Generations)
	// A previous endpoint's index may be that of a present backend that no longer has the endpoint.
	held, owned := make([]bool, indices), make([]bool, indices)
	for _, e := range s.Previous {
		if int(e.Index) >= indices || !e.Address.IsValid() || !e.VIP.IsValid() {
			return fmt.Errorf("the former endpoint %s has the index %d of %d", e.Address, e.Index, indices)
		}
		held[e.Index] = true
	}
	ids := map[uint32]bool{}
	for i := range s.Services {
		service := &s.Services[i]
		if err := service.check(s.Generations, owned); err != nil {
			return fmt.Errorf("service %s: %w", service.Name, err)
		}
		if service.ID >= s.IDs || ids[service.ID] {
			return fmt.Errorf("service %s has the id %d, which is another's or none", service.Name, service.ID)
		}
		ids[service.ID] = true
	}
	for _, index := range s.Free {
		if int(index) >= indices || held[index] || owned[index] {
			return fmt.Errorf("index %d is free, and is not", index)
		}
		held[index] = true
	}
	for _, id := range slices.Concat(s.FreeIDs, s.Quarantine) {
		if id >= s.IDs || ids[id] {
			return fmt.Errorf("service id %d is free, and is not", id)
		}
		ids[id] = true
	}
	for i, address := range s.Pool {
		if !address.IsValid() || slices.Contains(s.Pool[:i], address) {
			return fmt.Errorf("the address %s of the pool is none, or has two numbers", address)
		}
	}
	for _, c := range slices.Concat(s.Before, s.Carried) {
		if int(c.Index) >= indices {
			return fmt.Errorf("counters of index %d of %d", c.Index, indices)
		}
	}
	return nil
}

// check checks a service, and records which indices its backends own.
func (s *Service) check(generations []uint16, owned []bool) error {
	if !s.VIP.IsValid() || len(s.Places) != len(s.Backends) {
		return fmt.Errorf("it has %d backends, and places for %d", len(s.Backends), len(s.Places))
	}
	for i, p := range s.Places {
		switch {
		case int(p.Index) >= len(generations), owned[p.Index]:
			return fmt.Errorf("backend %d has the index %d, which is another's or none", i, p.Index)
		case p.Generation == 0 || p.Generation != generations[p.Index]:
			return fmt.Errorf("backend %d has the generation %d of index %d, which has %d", i, p.Generation, p.Index,
				generations[p.Index])
		}
		owned[p.Index] = true
	}
	for _, r := range []*Recipe{&s.Table, s.Base, s.Last} {
		if err := r.check(); err != nil {
			return err
		}
	}
	if m := s.Moved; m != nil && len(m.Bits) != (int(m.Size)+63)/64 {
		return fmt.Errorf("of %d slots, %d words say which have moved", m.Size, len(m.Bits))
	}
	return nil
}

func (r *Recipe) check() error {
	if r == nil {
		return nil
	}
	if len(r.All) != len(r.Shares) || len(r.Owners) != len(r.Weights) || len(r.Owners)+len(r.Absent) != len(r.All) &&
		len(r.All) > 0 {
		return fmt.Errorf("a table is of %d backends, %d shares, %d members, %d weights, and without %d",
			len(r.All), len(r.Shares), len(r.Owners), len(r.Weights), len(r.Absent))
	}
	for _, at := range r.Absent {
		if at < 0 || at >= len(r.All) {
			return fmt.Errorf("a table is without backend %d of %d", at, len(r.All))
		}
	}
	return nil
}
