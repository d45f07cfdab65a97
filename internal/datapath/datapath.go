// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/maglev"
)

// Options say where and how to forward.
type Options struct {
	// Interface is a name in the caller's network namespace.
	Interface string
	Hook      lb.Hook
	// TableSize is the number of slots of a Maglev table, a prime;
	// 0 means maglev.DefaultSize.
	TableSize uint32
	// FlowEntries bounds the flow table; 0 means DefaultFlowEntries. It takes
	// memory only where a service tracks flows.
	FlowEntries uint32
}

func (o Options) withDefaults() Options {
	if o.TableSize == 0 {
		o.TableSize = maglev.DefaultSize
	}
	if o.FlowEntries == 0 {
		o.FlowEntries = DefaultFlowEntries
	}
	return o
}

// Datapath forwards on one interface. Its methods may be called from several
// goroutines; those that touch the interface must run in its namespace.
type Datapath struct {
	options Options
	driver  string
	nic     func() (*net.Interface, error)
	// detached: programs are loaded and never attached.
	detached bool

	mu         sync.Mutex
	current    *generation
	shared     *shared
	ledger     ledger
	link       link.Link
	attachment Attachment
	closed     bool
}

// Open checks rights and the interface. It loads and attaches nothing yet.
func Open(options Options) (*Datapath, error) {
	options = options.withDefaults()
	if _, err := ethernet(options.Interface); err != nil {
		return nil, err
	}
	// Kernels before 5.11 charge maps to a limit that is small by default;
	// where raising it is refused, loading says so itself.
	_ = rlimit.RemoveMemlock()
	nic := func() (*net.Interface, error) { return ethernet(options.Interface) }
	return &Datapath{options: options, driver: driverOf(options.Interface), nic: nic}, nil
}

// NewDetached returns a datapath for an interface that does not exist, with
// the MAC address given: Apply loads programs without attaching them, for
// tests and measurements that run them through BPF_PROG_TEST_RUN.
// Options.Interface is ignored; the hook is XDP or TC.
func NewDetached(options Options, mac net.HardwareAddr) *Datapath {
	return &Datapath{
		options:    options.withDefaults(),
		nic:        func() (*net.Interface, error) { return &net.Interface{HardwareAddr: mac}, nil },
		detached:   true,
		attachment: Attachment{Hook: options.Hook, Reason: "not attached"},
	}
}

// ethernet returns the interface if packets can be balanced on it.
func ethernet(name string) (*net.Interface, error) {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w in this network namespace: `ip link` lists those there are", name, ErrNoInterface)
	}
	if len(nic.HardwareAddr) != macLength {
		return nil, fmt.Errorf("interface %q has no Ethernet address: %w: L2 DSR rewrites Ethernet frames", name, ErrUnsupported)
	}
	return nic, nil
}

// Apply makes state what the data plane does, whole or not at all. The first
// call attaches; later ones swap the attached program in one step. On an
// error, what was in use goes on.
func (d *Datapath) Apply(state State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	nic, err := d.nic()
	if err != nil {
		return err
	}
	at := placesOf(d.current).with(state)
	next, err := d.growShared(state, at)
	if err != nil {
		return err
	}
	made, err := d.install(nic, state, at, next)
	if err != nil {
		next.closeUnless(d.shared)
		return err
	}
	d.ledger.settle(d.shared, next, placesOf(d.current), at)
	d.shared.closeUnless(next)
	d.current.close()
	d.shared, d.current = next, made
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
	}
	for _, service := range state.Services {
		if service.Scheduler == lb.RoundRobin {
			want.flows = d.options.FlowEntries
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
	return made, nil
}

// install loads a generation and puts it in the place of the current one.
func (d *Datapath) install(nic *net.Interface, state State, at places, next *shared) (*generation, error) {
	if d.link == nil && !d.detached {
		return d.installFirst(nic, state, at, next)
	}
	made, err := loadGeneration(programOf(d.attachment.Hook), nic.HardwareAddr, state, at, d.current, d.options.TableSize, next)
	if err != nil || d.detached {
		return made, err
	}
	if err := d.link.Update(made.program); err != nil {
		made.close()
		return nil, fmt.Errorf("swapping the program on %s (the old one goes on): %v", nic.Name, err)
	}
	return made, nil
}

// installFirst tries the ways to attach in turn.
func (d *Datapath) installFirst(nic *net.Interface, state State, at places, next *shared) (*generation, error) {
	var last error
	for _, a := range attempts(d.options.Hook, d.driver) {
		made, err := loadGeneration(programOf(a.hook), nic.HardwareAddr, state, at, d.current, d.options.TableSize, next)
		if err != nil {
			return nil, err
		}
		l, err := attach(made.program, nic.Index, a)
		if err == nil {
			d.link = l
			d.attachment = Attachment{Hook: a.hook, Generic: a.generic, Driver: d.driver, Reason: a.reason}
			return made, nil
		}
		made.close()
		last = attachError(err, nic.Name, a)
		if !unsupported(err) {
			break
		}
	}
	return nil, last
}

// Program returns the program that forwards now, nil before the first Apply.
// It stays valid until the next Apply.
func (d *Datapath) Program() *ebpf.Program {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return nil
	}
	return d.current.program
}

// Attachment returns what is in use; the zero value before the first Apply.
func (d *Datapath) Attachment() Attachment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attachment
}

// Close detaches and frees everything. Flows and counters are gone.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var err error
	if d.link != nil {
		if err = d.link.Close(); err != nil && !os.IsNotExist(err) {
			err = fmt.Errorf("detaching from %s: %v", d.options.Interface, err)
		}
	}
	d.current.close()
	d.shared.closeUnless(nil)
	return err
}
