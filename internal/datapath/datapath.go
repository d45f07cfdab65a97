// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"os"
	"sync"

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

// Datapath forwards on one interface. Its methods may be called from several
// goroutines; those that touch the interface must run in its namespace.
type Datapath struct {
	options Options
	driver  string

	mu         sync.Mutex
	current    *Generation
	shared     *shared
	ledger     ledger
	link       link.Link
	attachment Attachment
	closed     bool
}

// Open checks rights and the interface. It loads and attaches nothing yet.
func Open(options Options) (*Datapath, error) {
	if options.TableSize == 0 {
		options.TableSize = maglev.DefaultSize
	}
	if options.FlowEntries == 0 {
		options.FlowEntries = DefaultFlowEntries
	}
	if _, err := ethernet(options.Interface); err != nil {
		return nil, err
	}
	// Kernels before 5.11 charge maps to a limit that is small by default;
	// where raising it is refused, loading says so itself.
	_ = rlimit.RemoveMemlock()
	return &Datapath{options: options, driver: driverOf(options.Interface)}, nil
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
	nic, err := ethernet(d.options.Interface)
	if err != nil {
		return err
	}
	at := placesOf(d.current).with(state)
	next, err := d.growShared(state, at)
	if err != nil {
		return err
	}
	generation, err := d.install(nic, state, at, next)
	if err != nil {
		next.closeUnless(d.shared)
		return err
	}
	d.ledger.settle(d.shared, next, placesOf(d.current), at)
	d.shared.closeUnless(next)
	d.current.close()
	d.shared, d.current = next, generation
	return nil
}

func placesOf(g *Generation) places {
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
func (d *Datapath) install(nic *net.Interface, state State, at places, next *shared) (*Generation, error) {
	if d.link == nil {
		return d.installFirst(nic, state, at, next)
	}
	generation, err := loadGeneration(programOf(d.attachment.Hook), nic.HardwareAddr, state, at, d.options.TableSize, next)
	if err != nil {
		return nil, err
	}
	if err := d.link.Update(generation.program); err != nil {
		generation.close()
		return nil, fmt.Errorf("swapping the program on %s (the old one goes on): %v", nic.Name, err)
	}
	return generation, nil
}

// installFirst tries the ways to attach in turn.
func (d *Datapath) installFirst(nic *net.Interface, state State, at places, next *shared) (*Generation, error) {
	var last error
	for _, a := range attempts(d.options.Hook, d.driver) {
		generation, err := loadGeneration(programOf(a.hook), nic.HardwareAddr, state, at, d.options.TableSize, next)
		if err != nil {
			return nil, err
		}
		l, err := attach(generation.program, nic.Index, a)
		if err == nil {
			d.link = l
			d.attachment = Attachment{Hook: a.hook, Generic: a.generic, Driver: d.driver, Reason: a.reason}
			return generation, nil
		}
		generation.close()
		last = attachError(err, nic.Name, a)
		if !unsupported(err) {
			break
		}
	}
	return nil, last
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
