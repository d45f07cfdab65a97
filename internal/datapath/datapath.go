// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/maglev"
)

// Options say where and how to forward.
type Options struct {
	// Interfaces are names in the caller's network namespace, at least one.
	// Packets for a VIP are taken on each of them, all by the same hook.
	Interfaces []string
	Hook       lb.Hook
	// TableSize is the number of slots of a Maglev table, a prime;
	// 0 means maglev.DefaultSize.
	TableSize uint32
	// FlowEntries bounds the flow table; 0 means DefaultFlowEntries. It takes
	// memory only where a service tracks flows.
	FlowEntries uint32
	// FullNATFlows bounds the flows of full NAT, which takes no new one when
	// there are that many; 0 means DefaultFullNATFlows. They take memory only
	// where a service has that mode.
	FullNATFlows uint32
	// TooBigRate is how many packets a second each CPU may answer with "too
	// big"; 0 means DefaultTooBigRate.
	TooBigRate uint32
}

func (o Options) withDefaults() Options {
	if o.TableSize == 0 {
		o.TableSize = maglev.DefaultSize
	}
	if o.FlowEntries == 0 {
		o.FlowEntries = DefaultFlowEntries
	}
	if o.FullNATFlows == 0 {
		o.FullNATFlows = DefaultFullNATFlows
	}
	if o.TooBigRate == 0 {
		o.TooBigRate = DefaultTooBigRate
	}
	return o
}

// Datapath forwards on its interfaces. Its methods may be called from several
// goroutines; those that touch the interfaces must run in their namespace.
type Datapath struct {
	options Options
	// findPorts looks the interfaces up anew: a MAC address may have changed.
	findPorts func() ([]port, error)
	// ways lists the ways to attach; tests have others than attempts.
	ways func(lb.Hook, []port) []attempt
	// detached: programs are loaded and never attached.
	detached bool

	mu      sync.Mutex
	current *generation
	shared  *shared
	ledger  ledger
	// holds[i] keeps the program on the i-th interface; none before the first
	// Apply, and none of a detached datapath.
	holds       []hold
	attachments []Attachment
	// tracing is what programs are loaded with while somebody traces.
	tracing *tracing
	closed  bool
	// stop ends what goes on beside; expiring says that something does.
	stop     chan struct{}
	expiring bool
	// natFlows is how many full-NAT flows were left when they were looked through.
	natFlows atomic.Uint32
}

// Open checks rights and the interfaces. It loads and attaches nothing yet.
func Open(options Options) (*Datapath, error) {
	options = options.withDefaults()
	options.Interfaces = slices.Clone(options.Interfaces)
	find := func() ([]port, error) { return ethernets(options.Interfaces) }
	if _, err := find(); err != nil {
		return nil, err
	}
	// Kernels before 5.11 charge maps to a limit that is small by default;
	// where raising it is refused, loading says so itself.
	_ = rlimit.RemoveMemlock()
	return &Datapath{options: options, findPorts: find, ways: attempts, stop: make(chan struct{})}, nil
}

// NewDetached returns a datapath for one interface that does not exist, with
// the MAC address given: Apply loads its program without attaching it, for
// tests and measurements that run it through BPF_PROG_TEST_RUN.
// Options.Interfaces is ignored; the hook is XDP or TC.
func NewDetached(options Options, mac net.HardwareAddr) *Datapath {
	return &Datapath{
		options:     options.withDefaults(),
		findPorts:   func() ([]port, error) { return []port{{mac: mac}}, nil },
		detached:    true,
		stop:        make(chan struct{}),
		attachments: []Attachment{{Hook: options.Hook, Reason: "not attached"}},
	}
}

// ethernets returns the interfaces if packets can be balanced on all of them.
func ethernets(names []string) ([]port, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: the configuration names none", ErrNoInterface)
	}
	if len(names) > int(xdpAgreementMAX_INTERFACES) {
		return nil, fmt.Errorf("%d interfaces: %w: there can be %d", len(names), ErrUnsupported, xdpAgreementMAX_INTERFACES)
	}
	var ports []port
	for _, name := range names {
		nic, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %q: %w in this network namespace: `ip link` lists those there are", name, ErrNoInterface)
		}
		if len(nic.HardwareAddr) != macLength {
			return nil, fmt.Errorf("interface %q has no Ethernet address: %w: packets are taken and sent on in Ethernet frames", name, ErrUnsupported)
		}
		// By index, for an interface may have several names.
		if slices.ContainsFunc(ports, func(p port) bool { return p.index == nic.Index }) {
			return nil, fmt.Errorf("interface %q is named twice: %w: each can have one program", name, ErrUnsupported)
		}
		ports = append(ports, port{name: name, index: nic.Index, mac: nic.HardwareAddr})
	}
	return ports, nil
}

// Apply makes state what the data plane does, whole or not at all. The first
// call attaches; later ones swap the program of each interface in one step.
// On an error, what was in use goes on.
func (d *Datapath) Apply(state State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	ports, err := d.findPorts()
	if err != nil {
		return err
	}
	at := placesOf(d.current).with(state)
	next, err := d.growShared(state, at)
	if err != nil {
		return err
	}
	made, err := d.install(ports, func(kind programKind) (*generation, error) {
		return loadGeneration(kind, ports, state, at, d.current, d.options.TableSize, next, d.tracing)
	})
	if err != nil {
		next.closeUnless(d.shared)
		return err
	}
	d.ledger.settle(d.shared, next, placesOf(d.current), at)
	d.shared.closeUnless(next)
	d.current.close()
	d.shared, d.current = next, made
	// What is measured or tested is not to forget by itself.
	if !d.detached && !d.expiring && next.natFlows.MaxEntries() > 1 {
		d.expiring = true
		go d.keepExpiring()
	}
	return nil
}

func placesOf(g *generation) places {
	if g == nil {
		return places{}
	}
	return g.places
}

// growShared returns shared maps that hold at least what the state needs.
func (d *Datapath) growShared(state State, at places) (*shared, error) {
	want := sizes{
		backends: max(powerOfTwo(len(at.generations)), 256),
		services: max(powerOfTwo(int(at.serviceIDs)), 256),
		flows:    1,
		natFlows: 1,
	}
	for _, service := range state.Services {
		if service.Scheduler == lb.RoundRobin {
			want.flows = d.options.FlowEntries
		}
		if service.Mode == lb.FullNAT {
			want.natFlows = d.options.FullNATFlows
		}
	}
	if want.within(d.shared) {
		return d.shared, nil
	}
	spec, err := xdpProgram.load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	made, err := newShared(spec, want, d.shared)
	if err != nil {
		return nil, loadError(err)
	}
	made.tooBigRate = d.options.TooBigRate
	return made, nil
}

// loader makes a generation of one of the programs.
type loader func(programKind) (*generation, error)

// install loads a generation and puts it in the place of the current one.
func (d *Datapath) install(ports []port, load loader) (*generation, error) {
	if d.holds == nil && !d.detached {
		return d.installFirst(ports, load)
	}
	made, err := load(programOf(d.attachments[0].Hook))
	if err != nil || d.detached {
		return made, err
	}
	if err := d.swap(ports, made); err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

// installFirst attaches, and removes what a killed balancer left, unless its
// place was taken: until then the packets of its connections are in good hands.
func (d *Datapath) installFirst(ports []port, load loader) (*generation, error) {
	made, used, err := d.attachFirst(ports, load)
	if used == tcFilter {
		return made, nil
	}
	left := removeFilters(ports)
	if left != nil && err == nil {
		left = errors.Join(left, d.detach())
		made.close()
	}
	if err := errors.Join(err, left); err != nil {
		return nil, err
	}
	return made, nil
}

// attachFirst tries the ways to attach in turn, and returns the one that it took,
// if any. One way serves all interfaces.
func (d *Datapath) attachFirst(ports []port, load loader) (*generation, way, error) {
	var lacks []string
	var last error
	for _, a := range d.ways(d.options.Hook, ports) {
		made, err := load(programOf(a.way.hook))
		if err != nil {
			return nil, way{}, err
		}
		holds, refused, err := attachAll(made.programs, ports, a.way)
		if err == nil {
			d.holds, d.attachments = holds, attachments(ports, a.way, a.because(lacks))
			return made, a.way, nil
		}
		made.close()
		last = attachError(err, refused, a.way)
		if !unsupported(err) {
			break
		}
		lacks = append(lacks, a.way.lack(refused))
	}
	return nil, way{}, last
}

// swap puts the programs of a new generation in the place of the old ones. If
// one interface refuses, those that have the new program get the old one again.
func (d *Datapath) swap(ports []port, made *generation) error {
	for i, h := range d.holds {
		err := h.Update(made.programs[i])
		if err == nil {
			continue
		}
		err = fmt.Errorf("swapping the program on %s (the old one goes on): %v", ports[i].name, err)
		for back := range i {
			if again := d.holds[back].Update(d.current.programs[back]); again != nil {
				err = errors.Join(err, fmt.Errorf("swapping back the program on %s (it has the new one now): %v", ports[back].name, again))
			}
		}
		return err
	}
	return nil
}

// Program returns the program that forwards on the first interface now, nil
// before the first Apply. It stays valid until the next Apply.
func (d *Datapath) Program() *ebpf.Program {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return nil
	}
	return d.current.programs[0]
}

// Attachments returns what is in use on each of Options.Interfaces, in their
// order; none before the first Apply.
func (d *Datapath) Attachments() []Attachment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.attachments)
}

// Close detaches and frees everything. Flows and counters are gone.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.stop)
	err := d.detach()
	d.current.close()
	d.shared.closeUnless(nil)
	return err
}

// detach takes the programs off their interfaces.
func (d *Datapath) detach() error {
	var errs []error
	for i, h := range d.holds {
		if err := h.Close(); err != nil && !os.IsNotExist(err) {
			errs = append(errs, fmt.Errorf("detaching from %s: %v", d.options.Interfaces[i], err))
		}
	}
	d.holds, d.attachments = nil, nil
	return errors.Join(errs...)
}
