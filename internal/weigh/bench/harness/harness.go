// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The harness's own programs, which are measured beside those under test.
const (
	Empty   = "empty"
	MACSwap = "macswap"
	Adjust  = "adjust"
	Line    = "line"
)

// stride is odd, so that stepping by it visits every flow of a power of two, each far from the one before (Knuth, TAOCP
// 3, section 6.4: the golden ratio).
const stride = 0x9e3779b1

// Harness runs programs of one hook under streams of packets. It must be used by one goroutine, on a thread that Pin
// keeps on one CPU.
type Harness struct {
	collection *ebpf.Collection
	suffix     string
	// recorded is the number of recorded flows, and room its upper bound.
	recorded, room uint32
}

// New loads the harness of a hook, XDP or TC, with room for the given number of recorded flows. Errors:
// datapath.ErrNoRights.
func New(hook lb.Hook, recorded uint32) (*Harness, error) {
	load, suffix := loadXdp, "_xdp"
	if hook == lb.HookTC {
		load, suffix = loadTc, "_tc"
	}
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded harness: %v", err)
	}
	spec.Maps[xdpMapRecordings].MaxEntries = max(recorded, 1)
	collection, err := ebpf.NewCollection(spec)
	if errors.Is(err, unix.EPERM) { // The verifier's refusal is EACCES.
		return nil, fmt.Errorf("loading the harness for %s: %w: run as root", hook, datapath.ErrNoRights)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the harness for %s: %+v", hook, err)
	}
	return &Harness{collection: collection, suffix: suffix, room: recorded}, nil
}

// Close frees the harness.
func (h *Harness) Close() { h.collection.Close() }

// Program returns one of the harness's own programs: Empty, MACSwap, Adjust or Line.
func (h *Harness) Program(name string) *ebpf.Program {
	return h.collection.Programs[name+h.suffix]
}

// Stream is a frame and the flows of the packets made from it.
type Stream struct {
	Frame Frame
	// Count is the number of flows, a power of two; 0 goes through all addresses and ports.
	Count uint32
	// Next is the number of the first flow, below Count.
	Next uint32
	// Offset is added to the numbers of the flows, so that streams can have different flows.
	Offset uint32
	// AddressBits is the number of bits of a flow's number that vary the client's address. The other bits vary its
	// port, from 1024 on. 0 means 16.
	AddressBits uint32
	// Recording holds the flows, if they are not computed from their numbers; Count is then at most their number.
	Recording *Recording
}

// defaultAddressBits makes as many clients as a /16 has addresses.
const defaultAddressBits = 16

// entry returns the name of the harness's program for a stream.
func (s Stream) entry() string {
	if s.Recording != nil {
		return entryReplay
	}
	return entryCount
}

// Send repeats a stream's frame through a program and returns the nanoseconds per packet, including those of the
// harness and of the kernel's loop. The Go runtime sends its threads signals. If one of them interrupts the run, the
// error is ErrInterrupted, and more packets were sent than requested.
func (h *Harness) Send(program *ebpf.Program, s Stream, packets uint32) (float64, error) {
	if s.Recording != nil {
		if err := h.setLayout(s.Recording.layout); err != nil {
			return 0, err
		}
	}
	if err := h.configure(program, s); err != nil {
		return 0, err
	}
	return h.run(s.entry(), s.Frame, packets)
}

// SendAtLeast is Send for cases where more packets than requested do no harm.
func (h *Harness) SendAtLeast(program *ebpf.Program, s Stream, packets uint32) error {
	_, err := h.Send(program, s, packets)
	if errors.Is(err, ErrInterrupted) {
		return nil
	}
	return err
}

// Returned sends the first packet of a stream to a program, and returns the program's return code: an XDP action, or a
// TC verdict.
func (h *Harness) Returned(program *ebpf.Program, s Stream) (uint32, error) {
	if err := h.configure(program, s); err != nil {
		return 0, err
	}
	returned, _, err := h.Program(s.entry()).Benchmark(s.Frame.Bytes, 1, nil)
	if err != nil {
		return 0, fmt.Errorf("BPF_PROG_TEST_RUN: %w", err)
	}
	return returned, nil
}

// configure configures the harness to send a stream to a program.
func (h *Harness) configure(program *ebpf.Program, s Stream) error {
	f := s.Frame
	address, port := f.client()
	settings := xdpHarness{
		Type: f.etherType(), Length: uint32(len(f.Bytes)), Tag: uint32(f.tag),
		Next: s.Next, Mask: s.Count - 1, Stride: stride, Offset: s.Offset, AddressBits: s.AddressBits,
		First: binary.BigEndian.Uint32(f.Bytes[address:]),
	}
	if s.AddressBits == 0 {
		settings.AddressBits = defaultAddressBits
	}
	if s.Recording != nil {
		settings.Base = s.Recording.base
	}
	settings.Address.Rest, settings.Address.At, settings.Address.Shift = f.varied(address, 4)
	settings.Port.Rest, settings.Port.At, settings.Port.Shift = f.varied(port, 2)
	if settings.Address.At == settings.Port.At {
		settings.Together = ^uint64(0)
		settings.Port.Rest = 0
	}
	copy(settings.Packet[:], f.Bytes)
	if err := h.collection.Variables[xdpVarHarness].Set(settings); err != nil {
		return fmt.Errorf("aiming the harness: %v", err)
	}
	return h.collection.Maps[xdpMapUnderTest].Put(uint32(0), program)
}

// Next returns the Stream.Next of a stream that continues the last one without repeating a flow.
func (h *Harness) Next() (uint32, error) {
	var settings xdpHarness
	if err := h.collection.Variables[xdpVarHarness].Get(&settings); err != nil {
		return 0, fmt.Errorf("reading where the harness is: %v", err)
	}
	return settings.Next, nil
}

// ErrInterrupted means that a signal interrupted a run, and the kernel sent more packets than requested.
var ErrInterrupted = errors.New("interrupted by a signal")

// The entry programs of the harness, by their use of the flows.
const (
	entryCount  = "harness"
	entryRecord = "record"
	entryReplay = "replay"
)

func (h *Harness) run(entry string, f Frame, packets uint32) (float64, error) {
	interrupted := false
	_, perPacket, err := h.Program(entry).Benchmark(f.Bytes, int(packets), func() { interrupted = true })
	switch {
	case err != nil:
		return 0, fmt.Errorf("BPF_PROG_TEST_RUN: %w", err)
	case interrupted:
		return 0, ErrInterrupted
	}
	return float64(perPacket.Nanoseconds()), nil
}

// Uninterrupted repeats a measurement until no signal interrupts it.
func Uninterrupted(measure func() (float64, error)) (ns float64, err error) {
	for range interruptions {
		if ns, err = measure(); !errors.Is(err, ErrInterrupted) {
			return ns, err
		}
	}
	return ns, fmt.Errorf("%w, %d times in a row: measure fewer packets at once", err, interruptions)
}

// interruptions is how often in a row a measurement may be interrupted.
const interruptions = 20
