// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
)

// The interfaces can change while packets arrive. The new programs are attached to the
// interfaces that come before any program sends packets by those, then exchanged on those that
// stay, one step an interface, and taken off those that leave once no program sends packets
// there. What all of them remember and count is the same.

// sameInterface says whether two are one, under whatever name.
func (p port) sameInterface(o port) bool { return p.index == o.index }

// portAt returns which of the generation's interfaces that is; -1 if none.
func (g *generation) portAt(p port) int { return slices.IndexFunc(g.ports, p.sameInterface) }

// portsOf returns the interfaces of these names. One in use that was deleted is left out until there is one of its name
// again. If all of them were, those in use stay: no packet arrives, and what is to be done with packets can change in memory.
func (d *Datapath) portsOf(names []string) ([]port, error) {
	ports, err := d.findPorts(names)
	if err == nil || d.current == nil || !errors.Is(err, ErrNoInterface) {
		return ports, err
	}
	present := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		used := slices.Contains(d.options.Interfaces, name)
		_, missing := net.InterfaceByName(name)
		return used && missing != nil
	})
	switch {
	case len(present) == len(names):
		return nil, err
	case len(present) == 0:
		return d.current.ports, nil
	}
	return d.findPorts(present)
}

// deleted says whether the interface is there no more, and with it all that was attached.
func (p port) deleted() bool {
	_, err := net.InterfaceByIndex(p.index)
	return err != nil
}

// leaving are the interfaces in use that are none of these.
func (d *Datapath) leaving(ports []port) []port {
	if d.current == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.current.ports), func(p port) bool { return slices.ContainsFunc(ports, p.sameInterface) })
}

// reach puts the programs of a new generation to work by the way in use, on these interfaces
// and no others. The lack that it returns with an error says why another way may do.
func (d *Datapath) reach(ports []port, made *generation) (lack string, err error) {
	h := &handover{d: d, before: d.current.ports, ports: ports, made: made, way: d.way}
	if err := h.reach(); err != nil {
		return h.lack, errors.Join(err, h.undo())
	}
	d.holds = h.holds
	return "", nil
}

func (h *handover) reach() error {
	stay, err := h.attachNew()
	if err != nil {
		return err
	}
	leaving := h.d.leaving(h.ports)
	if len(leaving) > 0 || len(stay.ports) < len(h.ports) {
		h.done = append(h.done, func() error { return h.d.hideTags(h.before) })
		if err := h.d.showTags(h.ports, h.way); err != nil {
			h.lack = err.Error()
			return err
		}
	}
	if err := h.exchange(stay.holds, stay.ports, stay.to, stay.from); err != nil {
		return err
	}
	if len(leaving) == 0 {
		return nil
	}
	// Frames may be on their way to be sent by an interface that is about to be left.
	rcu.Wait()
	if err := h.release(leaving, h.d.current.programs); err != nil {
		return err
	}
	// What stays off harms nothing: it is tried again by the next change, and at the end.
	_ = h.d.hideTags(h.ports)
	return nil
}

// staying are the interfaces that packets are taken on before and after a change.
type staying struct {
	holds    []hold
	ports    []port
	to, from []*ebpf.Program
}

// attachNew attaches to the interfaces that come, and returns those that stay.
func (h *handover) attachNew() (stay staying, err error) {
	h.holds = make([]hold, len(h.ports))
	for i, p := range h.ports {
		if at := h.d.current.portAt(p); at >= 0 {
			h.holds[i] = h.d.holds[at]
			stay.holds, stay.ports = append(stay.holds, h.holds[i]), append(stay.ports, p)
			stay.to, stay.from = append(stay.to, h.made.programs[i]), append(stay.from, h.d.current.programs[at])
			continue
		}
		made, err := h.d.attach(h.made.programs[i], p, h.way)
		if err != nil {
			if unsupported(err) {
				h.lack = h.way.lack(p)
			}
			return stay, attachError(err, p, h.way)
		}
		h.holds[i] = made
		h.done = append(h.done, made.Close)
	}
	return stay, nil
}
