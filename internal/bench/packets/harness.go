// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/lb"
)

// stride is odd, so that stepping by it goes through every flow of a power of
// two, far from the one before (Knuth, TAOCP 3, section 6.4: the golden ratio).
const stride = 0x9e3779b1

// harness runs programs under the packets of a case.
type harness struct {
	collection *ebpf.Collection
	suffix     string
	// recorded is how many flows have been recorded.
	recorded uint32
}

// newHarness loads the harness of a hook, with room to record so many flows.
func newHarness(hook lb.Hook, flows uint32) (*harness, error) {
	load, suffix := loadXdp, "_xdp"
	if hook == lb.HookTC {
		load, suffix = loadTc, "_tc"
	}
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded harness: %v", err)
	}
	spec.Maps[xdpMapRecordings].MaxEntries = flows
	collection, err := ebpf.NewCollection(spec)
	if errors.Is(err, unix.EPERM) { // The verifier's refusal is EACCES.
		return nil, fmt.Errorf("loading the harness for %s: %w: run as root", hook, datapath.ErrNoRights)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the harness for %s: %+v", hook, err)
	}
	return &harness{collection: collection, suffix: suffix}, nil
}

func (h *harness) close() { h.collection.Close() }

// program returns one of the harness's own.
func (h *harness) program(name string) *ebpf.Program {
	return h.collection.Programs[name+h.suffix]
}

// flow is how the harness goes through the flows of a case.
type flow struct {
	// count is a power of two; 0 goes through all addresses and ports.
	count uint32
	// next is the number of the first.
	next uint32
	// base is where recorded ones begin.
	base uint32
}

// aim makes the harness send a frame to a program.
func (h *harness) aim(program *ebpf.Program, f frame, flows flow) error {
	address, port := f.client()
	settings := xdpHarness{
		Type: f.etherType(), Length: uint32(len(f.bytes)), Tag: uint32(f.tag),
		Next: flows.next, Mask: flows.count - 1, Stride: stride, Base: flows.base,
		First: binary.BigEndian.Uint32(f.bytes[address:]),
	}
	settings.Address.Rest, settings.Address.At, settings.Address.Shift = f.varied(address, 4)
	settings.Port.Rest, settings.Port.At, settings.Port.Shift = f.varied(port, 2)
	if settings.Address.At == settings.Port.At {
		settings.Together = ^uint64(0)
		settings.Port.Rest = 0
	}
	copy(settings.Packet[:], f.bytes)
	if err := h.collection.Variables[xdpVarHarness].Set(settings); err != nil {
		return fmt.Errorf("aiming the harness: %v", err)
	}
	return h.collection.Maps[xdpMapUnderTest].Put(uint32(0), program)
}

// varied returns the piece that holds a field of so many bytes, without it, and
// where the field is in it.
func (f frame) varied(at uint32, length int) (rest uint64, piece, shift uint32) {
	piece = pieceOf(at)
	shift = (at - piece) * 8
	rest = binary.LittleEndian.Uint64(f.bytes[piece:])
	return rest &^ ((1<<(8*length) - 1) << shift), piece, shift
}

// at returns how far the harness has come.
func (h *harness) at() (uint32, error) {
	var settings xdpHarness
	if err := h.collection.Variables[xdpVarHarness].Get(&settings); err != nil {
		return 0, fmt.Errorf("reading where the harness is: %v", err)
	}
	return settings.Next, nil
}

// errInterrupted: a signal came, and the kernel ran more packets than asked.
var errInterrupted = errors.New("interrupted by a signal")

// The programs of the harness, by what they do with the flows.
const (
	entryCount  = "harness"
	entryRecord = "record"
	entryReplay = "replay"
)

// run repeats a frame and returns nanoseconds per packet, the harness and the
// kernel's loop included. The Go runtime sends its threads signals, and one of
// them may come in between: errInterrupted.
func (h *harness) run(entry string, f frame, packets uint32) (float64, error) {
	interrupted := false
	_, perPacket, err := h.program(entry).Benchmark(f.bytes, int(packets), func() { interrupted = true })
	switch {
	case err != nil:
		return 0, fmt.Errorf("BPF_PROG_TEST_RUN: %w", err)
	case interrupted:
		return 0, errInterrupted
	}
	return float64(perPacket.Nanoseconds()), nil
}

// uninterrupted measures until no signal comes in between.
func uninterrupted(measure func() (float64, error)) (ns float64, err error) {
	for range interruptions {
		if ns, err = measure(); !errors.Is(err, errInterrupted) {
			return ns, err
		}
	}
	return ns, fmt.Errorf("%w, %d times in a row: measure fewer packets at once", err, interruptions)
}

// interruptions is how often in a row a figure may be disturbed.
const interruptions = 20
