// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// loadFunc loads a generation of one kind of programs.
type loadFunc func(loader.Kind) (*loader.Programs, error)

// kindOf returns the kind of programs for a method.
func (d *Datapath) kindOf(w attach.Method) loader.Kind {
	kind := d.programs(w.Hook)
	kind.Dispatched = w.Dispatched
	return kind
}

// install loads a generation and replaces the current one by it.
func (d *Datapath) install(ports []attach.Port, requested lb.Hook, load loadFunc) (*loader.Programs, error) {
	switch {
	case d.detached:
		return load(d.programs(d.attachments[0].Hook))
	case d.holds == nil:
		return d.installFirst(ports, requested, load)
	case requested != d.hook || !slices.EqualFunc(ports, d.current.Ports, attach.Port.SameInterface):
		return d.rehook(ports, requested, load)
	}
	made, _, err := d.swapPrograms(ports, load)
	return made, err
}

// swapPrograms loads a generation and attaches it by the method in use. The reason that it returns with an error says
// why another method may work.
func (d *Datapath) swapPrograms(ports []attach.Port, load loadFunc) (made *loader.Programs, reason string, err error) {
	kind := d.kindOf(d.method)
	kind.NoAttachType = d.noAttachType
	made, reason, err = d.loadAndAttach(kind, ports, load)
	if err == nil || !d.current.Adopted || !errors.Is(err, syscall.EINVAL) {
		return made, reason, err
	}
	// The links take the program of the other attach type: see loader.Kind.
	kind.NoAttachType = !kind.NoAttachType
	made, reason, err = d.loadAndAttach(kind, ports, load)
	if err == nil {
		d.noAttachType = kind.NoAttachType
	}
	return made, reason, err
}

func (d *Datapath) loadAndAttach(kind loader.Kind, ports []attach.Port, load loadFunc) (
	*loader.Programs, string, error,
) {
	made, err := load(kind)
	if err != nil {
		return nil, "", err
	}
	reason, err := d.changeInterfaces(ports, made)
	if err != nil {
		made.Close()
		return nil, reason, err
	}
	return made, "", nil
}

// installFirst attaches, and removes the programs that a killed balancer left, unless ours took their place: until then
// those serve its connections.
func (d *Datapath) installFirst(ports []attach.Port, requested lb.Hook, load loadFunc) (*loader.Programs, error) {
	made, used, err := d.attachFirst(ports, requested, load)
	if used == attach.TCFilter {
		return made, nil
	}
	left := attach.RemoveFilters(ports)
	if left != nil && err == nil {
		left = errors.Join(left, d.detach())
		made.Close()
	}
	if err := errors.Join(err, left); err != nil {
		return nil, err
	}
	return made, nil
}

// attachFirst tries the methods in turn, and returns the one that it took, if any. One method serves all interfaces.
func (d *Datapath) attachFirst(ports []attach.Port, requested lb.Hook, load loadFunc) (*loader.Programs, attach.Method,
	error) {
	var lacks []string
	var last error
	for _, a := range d.attempts(requested, ports) {
		made, err := load(d.kindOf(a.Method))
		if a.Method.Dispatched && errors.Is(err, libxdp.ErrUnsupported) {
			last = attach.JoinError(err, ports)
			lacks = append(lacks, attach.XDPHolders(ports))
			continue
		}
		if err != nil {
			return nil, attach.Method{}, err
		}
		holds, refused, err := d.attachAll(made.Programs, ports, a.Method)
		if err == nil {
			if err = d.tags.DisableStripping(ports, a.Method); err == nil {
				d.holds, d.attachments = holds, attach.Describe(ports, a.Method, a.FullReason(lacks))
				d.hook, d.method = requested, a.Method
				return made, a.Method, nil
			}
			made.Close()
			last = errors.Join(err, attach.CloseAll(holds), d.tags.RestoreStripping(nil))
			lacks = append(lacks, err.Error())
			continue
		}
		made.Close()
		last = attach.Explain(err, refused, a.Method)
		if requested == lb.HookAuto && a.Method.Hook == lb.HookXDP && attach.HeldByAnother(err, refused) {
			lacks = append(lacks, attach.XDPHolders([]attach.Port{refused}))
			continue
		}
		if !attach.Unsupported(err) {
			break
		}
		lacks = append(lacks, a.Method.MissingCapability(refused))
	}
	return nil, attach.Method{}, last
}

// attachAll hooks programs[i] onto ports[i], all of them or none. On an error
// it returns the port that refused too.
func (d *Datapath) attachAll(programs []*ebpf.Program, ports []attach.Port, w attach.Method) ([]attach.Hold,
	attach.Port, error) {
	var holds []attach.Hold
	for i, p := range ports {
		h, err := d.attach(programs[i], p, w)
		if err != nil {
			return nil, p, errors.Join(err, attach.CloseAll(holds))
		}
		holds = append(holds, h)
	}
	return holds, attach.Port{}, nil
}

// attach hooks a program onto an interface, and keeps it there. It replaces a program that another process has left
// there.
func (d *Datapath) attach(program *ebpf.Program, p attach.Port, w attach.Method) (attach.Hold, error) {
	if i := slices.IndexFunc(d.leftovers, func(l attach.Leftover) bool {
		return l.Method == w &&
			l.Index == p.Index
	}); i >= 0 {
		left := d.leftovers[i].Hold
		d.leftovers = slices.Delete(d.leftovers, i, i+1)
		if left.Update(program) == nil {
			return left, nil
		}
		if err := left.Close(); err != nil {
			return nil, err
		}
	}
	h, err := attach.Attach(program, p, w, d.options.WithClsact)
	if err != nil {
		return nil, err
	}
	return d.keeper.PinLink(h, w, p), nil
}

// detach takes the programs off their interfaces.
func (d *Datapath) detach() error {
	var errs []error
	for i, h := range d.holds {
		if err := h.Close(); err != nil && !os.IsNotExist(err) {
			errs = append(errs, fmt.Errorf("detaching from %s: %v", d.attachments[i].Interface, err))
		}
	}
	d.holds, d.attachments = nil, nil
	return errors.Join(errs...)
}
