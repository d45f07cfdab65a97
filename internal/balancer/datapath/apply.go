// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Apply brings the data plane to a state, or changes nothing. The first call attaches the programs; later ones update
// the memory that the programs read, each service atomically. Where that is not enough (no room, or the program itself
// must be another), Apply loads a new generation beside the present one, and replaces the program of each interface
// atomically; for another hook and on other interfaces it attaches the new program before it detaches the old one. On
// an error, the present generation stays in use.
func (d *Datapath) Apply(state lb.State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	names := d.options.Interfaces
	if len(state.Interfaces) > 0 {
		names = slices.Clone(state.Interfaces)
	}
	ports, err := d.portsOf(names)
	if err != nil {
		return err
	}
	if err := d.change(state, ports); err != nil {
		return errors.Join(err, d.removeLeftovers(ports))
	}
	d.sockets.EndStranded()
	d.options.Interfaces = names
	return nil
}

// change is Apply with the lock held, on these interfaces.
func (d *Datapath) change(state lb.State, ports []attach.Port) error {
	c, err := d.register.Plan(state.WithHairpins(), d.options.TableSize, d.now())
	if err != nil {
		return err
	}
	if d.canUpdateInPlace(c, ports) {
		if err := d.shared.Prefixes.Add(c); err != nil {
			return err
		}
		if done, err := d.publish(c); done || err != nil {
			return err
		}
	}
	return d.replace(c, ports)
}

// removeLeftovers removes the filters of a killed balancer after a failed first change: no process would maintain
// them.
func (d *Datapath) removeLeftovers(ports []attach.Port) error {
	if d.current != nil || d.detached {
		return nil
	}
	return attach.RemoveFilters(ports)
}

// canUpdateInPlace reports whether the loaded programs and maps suffice for the state after a change.
func (d *Datapath) canUpdateInPlace(c *generation.Revision, ports []attach.Port) bool {
	if d.current == nil || d.current.Adopted || d.current.Tracing != d.tracing.Maps() ||
		d.current.Answers != d.checks.Answers() || d.sockets.Cgroup() != c.State.Local ||
		!d.detached && d.requestedHook(c.State) != d.hook ||
		!slices.EqualFunc(ports, d.current.Ports, attach.Port.Same) {
		return false
	}
	return d.current.Memory.CanHold(c) && d.sizesFor(c).Within(d.shared)
}

// publish updates the services that differ, in the memory that the programs read. It returns false, and has changed
// nothing, where there is no room.
func (d *Datapath) publish(c *generation.Revision) (bool, error) {
	m := d.current.Memory
	p := m.PrepareOrWait(c)
	if p == nil {
		return false, nil
	}
	d.writeSnapshot(c, d.current.Ports)
	c.PutLimits(d.shared.Turn, d.shared.Load, d.janitor.Now(), flowtable.Monotonic())
	// Until the janitor knows the new backends, it would take their flows for those of removed backends.
	d.janitor.Freeze(true)
	d.keeper.WriteNumber(m)
	p.Publish()
	c.StoreHead(m.Head())
	d.commit(c, d.shared)
	d.publishView()
	d.keeper.RemoveOld(d.current)
	return true, nil
}

// replace loads a new generation, and replaces the programs by those of the new one.
func (d *Datapath) replace(c *generation.Revision, ports []attach.Port) error {
	if err := d.planMemory(c); err != nil {
		return err
	}
	next, err := d.growShared(c)
	if err != nil {
		return err
	}
	memory, placements, err := d.makeMemory(c, next)
	if err == nil {
		err = next.Prefixes.Add(c)
	}
	if err != nil {
		memory.Close()
		next.CloseUnless(d.shared)
		return err
	}
	d.writeSnapshot(c, ports)
	d.keeper.WriteNumber(memory)
	// Packets find the programs before the limits are written.
	c.NoteUnremembered(next.Turn, d.janitor.Now())
	flows := sharedmaps.Move{Janitor: d.janitor, From: d.shared, To: next, Previous: d.previous, Memory: memory,
		Returns: c.ReplyKeys(d.secret)}
	local, err := localsockets.Begin(d.sockets, d.keeper, c.State.Local, memory, next)
	if err != nil {
		d.keeper.RemoveUnused(d.current)
		memory.Close()
		next.CloseUnless(d.shared)
		return err
	}
	d.sockets = local.InUse()
	programs, err := d.install(ports, d.requestedHook(c.State), func(kind loader.Kind) (*loader.Programs, error) {
		programs, err := d.load(kind, ports, memory, next)
		if err == nil {
			flows.Begin()
		}
		return programs, err
	})
	if err != nil {
		err = errors.Join(err, local.Undo())
		d.sockets = local.Before
		flows.Cancel()
		d.keeper.RemoveUnused(d.current)
		memory.Close()
		next.CloseUnless(d.shared)
		return err
	}
	c.SetPlacements(placements)
	d.activate(c, ports, programs, next, &flows, local)
	return nil
}

// activate makes the programs, maps and sockets of a new generation current, which process packets already, and closes
// those of the previous one.
func (d *Datapath) activate(c *generation.Revision, ports []attach.Port, programs *loader.Programs,
	next *sharedmaps.Maps, flows *sharedmaps.Move, local *localsockets.Change) {
	oldShared, oldPrograms := d.shared, d.current
	d.shared, d.current = next, programs
	c.PutLimits(d.shared.Turn, d.shared.Load, d.janitor.Now(), flowtable.Monotonic())
	flows.Finish()
	d.noteLostFlows(flows.Lost)
	d.previous.Close()
	d.previous = nil
	d.sockets = local.Next
	d.noteSocketError(local.Finish(d.keeper, d.shared))
	d.commit(c, oldShared)
	d.noteMemory(c)
	d.checks.SetPorts(ports)
	d.publishView()
	d.published.WaitForReaders()
	d.finishAdoption(oldShared)
	d.awaitLoads()
	oldShared.CloseUnless(next)
	local.Release()
	if oldPrograms != nil {
		oldPrograms.Close()
		oldPrograms.Memory.Close()
	}
	// A detached data plane, which is measured or tested, does not expire flows by itself.
	if !d.detached && !d.expiring {
		d.expiring = true
		go d.runJanitor()
	}
}

// load loads a generation, and pins it.
func (d *Datapath) load(kind loader.Kind, ports []attach.Port, memory *generation.Memory, shared *sharedmaps.Maps) (
	*loader.Programs, error,
) {
	programs, err := d.kernel.LoadPrograms(kind, ports, memory, shared, d.tracing.Maps(), d.checks.Answers())
	if err != nil {
		return nil, err
	}
	return d.keep(programs, shared)
}

// keep pins a generation that was loaded, where it is to outlive the process. On an error it is closed.
func (d *Datapath) keep(programs *loader.Programs, shared *sharedmaps.Maps) (*loader.Programs, error) {
	if d.keeper != nil && d.options.Orphan > 0 {
		var err error
		if programs.Watchdog, err = loader.StartWatchdog(programs.Memory.Map); err != nil {
			programs.Close()
			return nil, err
		}
	}
	d.keeper.Pin(programs, shared, d.sockets.Pinned())
	return programs, nil
}

// commit records a change in the ledger, the register, the traces and the janitor. old are the shared maps before it.
func (d *Datapath) commit(c *generation.Revision, old *sharedmaps.Maps) {
	d.ledger.Commit(old, d.shared, c.Places)
	d.register.Commit(c)
	d.shared.Prefixes.Sweep(d.register)
	d.recordNames = nil
	d.tracing.Resolve(d.register)
	d.janitor.SetInput(d.janitorInput())
}

// growShared returns shared maps that are large enough for a change: the present ones, or new ones.
func (d *Datapath) growShared(c *generation.Revision) (*sharedmaps.Maps, error) {
	sizes := d.sizesToAllocate(c)
	if sizes.Within(d.shared) {
		return d.shared, nil
	}
	spec, err := loader.XDP.Load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	shared, err := sharedmaps.New(d.kernel.NewMap, spec, sizes, d.shared, d.secret)
	if err != nil {
		return nil, attach.LoadError(err)
	}
	return shared, nil
}

// unused reports whether no packet of a service was sent to a backend yet. The caller holds the lock.
func (d *Datapath) unused(r *generation.Record) bool {
	if d.shared == nil {
		return false
	}
	for _, p := range r.Places {
		count, err := sharedmaps.ReadBackend(d.shared.Counts, p.Index)
		if err != nil || count.Plus(d.ledger.OtherCount(p.Index)).Minus(d.ledger.Baselines[p.Index]).Packets != 0 {
			return false
		}
	}
	return true
}

// socketsAt counts the sockets of this host that are flows of a backend, by its index; none where they cannot be read.
// The caller holds the lock.
func (d *Datapath) socketsAt() map[uint32]uint32 {
	known := d.sockets.Maps()[objects.LocalMapLocalSockets]
	if known == nil {
		return nil
	}
	t, err := flowtable.TallySockets(known)
	if err != nil {
		return nil
	}
	return t.Backends
}
