// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/lb"
)

// The programs that stand beside ours in every run.
const (
	subjectEmpty   = "empty"
	subjectMACSwap = "macswap"
)

// stride is odd, so that stepping by it goes through every flow of a power of
// two, far from the one before (Knuth, TAOCP 3, section 6.4: the golden ratio).
const stride = 0x9e3779b1

// flowTable holds the million known flows and leaves room for the new ones
// that are measured beside them.
const flowTable = 1 << 22

// rig is the harness of one hook, and the programs it can call.
type rig struct {
	collection *ebpf.Collection
	harness    *ebpf.Program
	programs   map[string]*ebpf.Program
	balancer   *datapath.Datapath
	// next is where the harness goes on in the flows of each case: flows that
	// must be new must not come twice.
	next map[int]uint32
}

func newRig(hook lb.Hook) (*rig, error) {
	load, suffix := loadXdp, "_xdp"
	if hook == lb.HookTC {
		load, suffix = loadTc, "_tc"
	}
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded harness: %v", err)
	}
	collection, err := ebpf.NewCollection(spec)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("loading the harness for %s: %w: run as root", hook, datapath.ErrNoRights)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the harness for %s: %w", hook, err)
	}
	balancer := datapath.NewDetached(datapath.Options{Hook: hook, FlowEntries: flowTable}, ownMAC)
	if err := balancer.Apply(state()); err != nil {
		collection.Close()
		return nil, fmt.Errorf("loading the balancer for %s: %w", hook, err)
	}
	return &rig{
		collection: collection,
		harness:    collection.Programs["harness"+suffix],
		balancer:   balancer,
		programs: map[string]*ebpf.Program{
			subjectEmpty:   collection.Programs["empty"+suffix],
			subjectMACSwap: collection.Programs["macswap"+suffix],
		},
		next: map[int]uint32{},
	}, nil
}

func (r *rig) close() {
	r.collection.Close()
	r.balancer.Close()
}

// program returns what a case runs: the balancer, unless it is a baseline.
func (r *rig) program(m measured) *ebpf.Program {
	if program, ok := r.programs[m.subject]; ok {
		return program
	}
	return r.balancer.Program()
}

// aim makes the harness send a frame through the flows of a case.
func (r *rig) aim(m measured, f frame, next uint32) error {
	h := xdpHarness{Next: next, Mask: m.flows - 1, Stride: stride,
		AddressAt: f.addressAt, PortAt: f.portAt, Address: binary.BigEndian.Uint32(f.bytes[f.addressAt:])}
	if m.kind == fresh && m.scheduler == lb.RoundRobin {
		// Flows never come again: all addresses and ports, not only `flows`.
		h.Mask = ^uint32(0)
	}
	copy(h.Packet[:], f.bytes)
	if err := r.collection.Variables[xdpVarHarness].Set(h); err != nil {
		return fmt.Errorf("aiming the harness: %v", err)
	}
	return r.collection.Maps[xdpMapUnderTest].Put(uint32(0), r.program(m))
}

// errInterrupted: a signal came, and the kernel ran more packets than asked.
var errInterrupted = errors.New("interrupted by a signal")

// run repeats a frame and returns nanoseconds per packet, the harness and the
// kernel's loop included. The Go runtime sends its threads signals, and one of
// them may come in between: errInterrupted.
func (r *rig) run(f frame, packets uint32) (float64, error) {
	interrupted := false
	_, perPacket, err := r.harness.Benchmark(f.bytes, int(packets), func() { interrupted = true })
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

// prime makes the flows of a case known.
func (r *rig) prime(m measured) error {
	if m.prime == nil {
		return nil
	}
	if err := r.aim(m, *m.prime, 0); err != nil {
		return err
	}
	// Interrupted, it has gone through more flows than there are: no harm.
	_, err := r.run(*m.prime, m.flows)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// measureEmpty runs the empty program under the packets of a case.
func (r *rig) measureEmpty(m measured, packets uint32) (float64, error) {
	empty := m
	empty.subject = subjectEmpty
	if err := r.aim(empty, m.frame, 0); err != nil {
		return 0, err
	}
	return r.run(m.frame, packets)
}

// measure runs a case once. It fails unless every packet ended as it should:
// a figure for packets that were dropped would be worth nothing.
func (r *rig) measure(id int, m measured, packets uint32) (float64, error) {
	warm := min(m.flows, packets/4)
	if err := r.aim(m, m.frame, r.next[id]); err != nil {
		return 0, err
	}
	if _, err := r.run(m.frame, max(warm, 1)); err != nil && !errors.Is(err, errInterrupted) {
		return 0, err
	}
	before, err := r.balancer.Counters()
	if err != nil {
		return 0, err
	}
	ns, err := r.run(m.frame, packets)
	if err != nil {
		return 0, errors.Join(err, r.remember(id))
	}
	if err := r.remember(id); err != nil {
		return 0, err
	}
	after, err := r.balancer.Counters()
	if err != nil {
		return 0, err
	}
	return ns, expect(m, before, after, uint64(packets))
}

// remember notes where the harness has come to in the flows of a case.
func (r *rig) remember(id int) error {
	var h xdpHarness
	if err := r.collection.Variables[xdpVarHarness].Get(&h); err != nil {
		return fmt.Errorf("reading where the harness is: %v", err)
	}
	r.next[id] = h.Next
	return nil
}

// expect checks that the outcome counters moved as the case demands.
func expect(m measured, before, after datapath.Counters, packets uint64) error {
	want := map[string]uint64{}
	switch {
	case m.baseline():
	case m.kind == foreign:
		want["passed_no_service"] = packets
	default:
		want["forwarded"] = packets
	}
	for i, outcome := range after.Outcomes {
		if moved := outcome.Packets - before.Outcomes[i].Packets; moved != want[outcome.Name] {
			return fmt.Errorf("%v: outcome %s counted %d packets instead of %d: the figure would not be what it claims",
				m, outcome.Name, moved, want[outcome.Name])
		}
	}
	return nil
}
