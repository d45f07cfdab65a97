// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
)

// The interfaces can change while packets arrive. The new programs are attached to added interfaces before any program
// sends packets there, then replace the old ones on the interfaces that stay, each atomically, and the old ones are
// detached from removed interfaces once no program sends packets there. All of them share the maps of flows and
// counters.

// portsOf returns the interfaces of these names. An interface in use that was deleted is left out until one of its name
// exists again. If all of them were deleted, the present ones stay: no packet arrives, and the configuration can still
// change in memory.
func (d *Datapath) portsOf(names []string) ([]attach.Port, error) {
	ports, err := d.findPorts(names)
	if err == nil || d.current == nil || !errors.Is(err, attach.ErrNoInterface) {
		return ports, err
	}
	present := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		used := slices.Contains(d.options.Interfaces, name)
		_, err := d.findPorts([]string{name})
		return used && errors.Is(err, attach.ErrNoInterface)
	})
	switch {
	case len(present) == len(names):
		return nil, err
	case len(present) == 0:
		return d.current.Ports, nil
	}
	return d.findPorts(present)
}

// removedPorts returns the interfaces in use that are not among these.
func (d *Datapath) removedPorts(ports []attach.Port) []attach.Port {
	if d.current == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.current.Ports),
		func(p attach.Port) bool { return slices.ContainsFunc(ports, p.SameInterface) })
}

// changeInterfaces attaches the programs of a new generation by the method in use, to these interfaces and no others.
// With an error it returns the reason why another method may work.
func (d *Datapath) changeInterfaces(ports []attach.Port, programs *loader.Programs) (reason string, err error) {
	h := &hookChange{d: d, before: d.current.Ports, ports: ports, programs: programs, method: d.method}
	if err := h.changeInterfaces(); err != nil {
		return h.reason, errors.Join(err, h.undo())
	}
	d.holds = h.holds
	return "", nil
}

func (h *hookChange) changeInterfaces() error {
	kept, err := h.attachNew()
	if err != nil {
		return err
	}
	removed := h.d.removedPorts(h.ports)
	if len(removed) > 0 || len(kept.ports) < len(h.ports) {
		h.undoSteps = append(h.undoSteps, func() error { return h.d.tags.RestoreStripping(h.before) })
		if err := h.d.tags.DisableStripping(h.ports, h.method); err != nil {
			h.reason = err.Error()
			return err
		}
	}
	if err := h.exchange(kept.holds, kept.ports, kept.to, kept.from); err != nil {
		return err
	}
	if len(removed) == 0 {
		return nil
	}
	// Frames may be on their way to an interface whose program is about to be detached.
	rcu.Wait()
	if err := h.release(removed, h.d.current.Programs); err != nil {
		return err
	}
	// Features that stay off do no harm: they are tried again by the next change, and at the end.
	_ = h.d.tags.RestoreStripping(h.ports)
	return nil
}

// keptPorts are the interfaces that have our program before and after a change.
type keptPorts struct {
	holds    []attach.Hold
	ports    []attach.Port
	to, from []*ebpf.Program
}

// attachNew attaches the programs of added interfaces, and returns the interfaces that stay.
func (h *hookChange) attachNew() (kept keptPorts, err error) {
	h.holds = make([]attach.Hold, len(h.ports))
	for i, p := range h.ports {
		if at := h.d.current.PortAt(p); at >= 0 {
			h.holds[i] = h.d.holds[at]
			kept.holds, kept.ports = append(kept.holds, h.holds[i]), append(kept.ports, p)
			kept.to, kept.from = append(kept.to, h.programs.Programs[i]), append(kept.from, h.d.current.Programs[at])
			continue
		}
		hold, err := h.d.attach(h.programs.Programs[i], p, h.method)
		if err != nil {
			if h.method.Refused(err) {
				h.reason = h.method.MissingCapability(p, err)
			}
			return kept, attach.Explain(err, p, h.method)
		}
		h.holds[i] = hold
		h.undoSteps = append(h.undoSteps, hold.Close)
	}
	return kept, nil
}
