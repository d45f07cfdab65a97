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

// presentKind returns the kind of the programs in use.
func (d *Datapath) presentKind() loader.Kind {
	if d.detached {
		return d.programs(d.attachments[0].Hook)
	}
	kind := d.kindOf(d.method)
	kind.NoAttachType = d.noAttachType
	return kind
}

// install loads a generation and replaces the current one by it.
func (d *Datapath) install(ports []attach.Port, requested lb.Hook, load loadFunc) (*loader.Programs, error) {
	switch {
	case d.detached:
		return load(d.presentKind())
	case d.holds == nil:
		return d.installFirst(ports, requested, load)
	}
	d.putBack() // only an attached program can be replaced
	if requested != d.hook || !slices.EqualFunc(ports, d.current.Ports, attach.Port.SameInterface) {
		return d.rehook(ports, requested, load)
	}
	programs, _, err := d.swapPrograms(ports, load)
	return programs, err
}

// swapPrograms loads a generation and attaches it by the method in use. With an error it returns the reason why another
// method may work.
func (d *Datapath) swapPrograms(ports []attach.Port, load loadFunc) (
	programs *loader.Programs, reason string, err error,
) {
	kind := d.presentKind()
	programs, reason, err = d.loadAndAttach(kind, ports, load)
	if err == nil || !d.current.Adopted || !errors.Is(err, syscall.EINVAL) {
		return programs, reason, err
	}
	// The links take the program of the other attach type: see loader.Kind.
	kind.NoAttachType = !kind.NoAttachType
	programs, reason, err = d.loadAndAttach(kind, ports, load)
	if err == nil {
		d.noAttachType = kind.NoAttachType
	}
	return programs, reason, err
}

func (d *Datapath) loadAndAttach(kind loader.Kind, ports []attach.Port, load loadFunc) (
	*loader.Programs, string, error,
) {
	programs, err := load(kind)
	if err != nil {
		return nil, "", err
	}
	reason, err := d.changeInterfaces(ports, programs)
	if err != nil {
		programs.Close()
		return nil, reason, err
	}
	return programs, "", nil
}

// installFirst attaches a first generation, and then removes the filters of a killed balancer, unless ours have
// replaced them: until then they serve its connections.
func (d *Datapath) installFirst(ports []attach.Port, requested lb.Hook, load loadFunc) (*loader.Programs, error) {
	programs, used, err := d.attachFirst(ports, requested, load)
	if used == attach.TCFilter {
		return programs, nil
	}
	removeErr := attach.RemoveFilters(ports)
	if removeErr != nil && err == nil {
		removeErr = errors.Join(removeErr, d.detach())
		programs.Close()
	}
	if err := errors.Join(err, removeErr); err != nil {
		return nil, err
	}
	return programs, nil
}

// attachFirst tries the methods in turn, and returns the one that worked, if any. All interfaces have the same method.
func (d *Datapath) attachFirst(ports []attach.Port, requested lb.Hook, load loadFunc) (*loader.Programs, attach.Method,
	error) {
	var reasons []string
	var lastErr error
	for _, a := range d.attempts(requested, ports) {
		programs, err := load(d.kindOf(a.Method))
		if a.Method.Dispatched && errors.Is(err, libxdp.ErrUnsupported) {
			lastErr = attach.JoinError(err, ports)
			reasons = append(reasons, attach.XDPHolders(ports))
			continue
		}
		if err != nil {
			return nil, attach.Method{}, err
		}
		holds, refused, err := d.attachAll(programs.Programs, ports, a.Method)
		if err == nil {
			if err = d.tags.DisableStripping(ports, a.Method); err == nil {
				d.holds, d.attachments = holds, attach.Describe(ports, a.Method, a.FullReason(reasons))
				d.hook, d.method = requested, a.Method
				return programs, a.Method, nil
			}
			programs.Close()
			lastErr = errors.Join(err, attach.CloseAll(holds), d.tags.RestoreStripping(nil))
			reasons = append(reasons, err.Error())
			continue
		}
		programs.Close()
		lastErr = attach.Explain(err, refused, a.Method)
		if requested == lb.HookAuto && a.Method.Hook == lb.HookXDP && attach.HeldByAnother(err, refused) {
			reasons = append(reasons, attach.XDPHolders([]attach.Port{refused}))
			continue
		}
		if !a.Method.Refused(err) {
			break
		}
		reasons = append(reasons, a.Method.MissingCapability(refused, err))
	}
	return nil, attach.Method{}, lastErr
}

// attachAll attaches programs[i] to ports[i], all of them or none. With an error it returns the port that failed, too.
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

// attach attaches a program to an interface, and pins its link. It replaces a program that another process has left
// there.
func (d *Datapath) attach(program *ebpf.Program, p attach.Port, w attach.Method) (attach.Hold, error) {
	if i := slices.IndexFunc(d.leftovers, func(l attach.Leftover) bool {
		return l.Method == w &&
			l.Index == p.Index
	}); i >= 0 {
		hold := d.leftovers[i].Hold
		d.leftovers = slices.Delete(d.leftovers, i, i+1)
		if hold.Update(program) == nil {
			return hold, nil
		}
		if err := hold.Close(); err != nil {
			return nil, err
		}
	}
	h, err := attach.Attach(program, p, w, d.options.WithClsact)
	if err != nil {
		return nil, err
	}
	return d.keeper.PinLink(h, w, p), nil
}

// detach detaches the programs from their interfaces.
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
