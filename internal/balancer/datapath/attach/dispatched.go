// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Where libxdp's dispatcher is attached to an interface, our program joins the others in it: it is loaded for a
// function of the dispatcher, and each replacement of our program comes with a new dispatcher. Pins of libxdp's
// protocol, which outlive our process, keep it attached; our own sets of pins have the program's id, by which the next
// process finds it.

// Dispatched keeps a program in libxdp's dispatcher.
type Dispatched struct {
	place *libxdp.Place
	id    ebpf.ProgramID
}

// joinDispatcher puts a program into the dispatcher on an interface, or into a new dispatcher where the interface has
// no program.
func joinDispatcher(program *ebpf.Program, p Port, m Method) (Hold, error) {
	if id, found := dispatchedOn(p); found {
		return nil, fmt.Errorf("%w: the dispatcher runs a balancer already (program id %d)", syscall.EBUSY, id)
	}
	place, err := libxdp.Open(p.Index, m.Generic)
	if err != nil {
		return nil, err
	}
	h := &Dispatched{place: place}
	if err := h.Update(program); err != nil {
		place.Close()
		return nil, err
	}
	return h, nil
}

// Update replaces our program atomically, also where ours was removed from the dispatcher.
func (h *Dispatched) Update(program *ebpf.Program) error {
	c, err := libxdp.New(program, lb.RunPriority)
	if err == nil {
		err = h.place.Put(c, h.id)
	}
	if err == nil {
		h.id = c.ID
	}
	return err
}

// Close removes the program from the dispatcher, and detaches a dispatcher that has no other program.
func (h *Dispatched) Close() error {
	defer h.place.Close()
	return h.place.Remove(h.id)
}

// Release closes our handles; the program stays attached.
func (h *Dispatched) Release() error {
	h.place.Close()
	return nil
}

// OpenDispatched opens our place in libxdp's dispatcher on an interface, which runs our program of this id. Leftover
// pins of other dispatchers that had programs of the ids in ours are removed, too.
func OpenDispatched(p Port, generic bool, id ebpf.ProgramID, ours []ebpf.ProgramID) (Hold, Method, error) {
	place, err := libxdp.Open(p.Index, generic)
	if err != nil {
		return nil, Method{}, err
	}
	place.Remember(ours...)
	m := NativeDispatched
	if generic {
		m = GenericDispatched
	}
	return &Dispatched{place: place, id: id}, m, nil
}

// Running reports whether the dispatcher runs the program. It assumes so while the dispatcher is locked.
func (h *Dispatched) Running() bool {
	all, _, err := h.place.Components()
	return err == nil && slices.ContainsFunc(all, func(c libxdp.Component) bool { return c.ID == h.id }) ||
		errors.Is(err, libxdp.ErrLocked)
}

// PutBack puts the program into the dispatcher again, or into a new one.
func (h *Dispatched) PutBack(program *ebpf.Program, _ WithClsact) error { return h.Update(program) }

// dispatcherAttempts returns the method by which to join the interfaces' dispatchers, in the dispatcher's mode for all
// interfaces; nil where no interface has a dispatcher.
func dispatcherAttempts(ports []Port) []Attempt {
	for _, p := range ports {
		all, generic, err := libxdp.Components(p.Index)
		if err != nil {
			continue
		}
		all = slices.DeleteFunc(all, IsOurs)
		a := Attempt{Method: NativeDispatched,
			Reason: fmt.Sprintf("libxdp's dispatcher is on %s, which runs %s: joined "+
				"at run priority %d",
				p.Name, describeComponents(all), lb.RunPriority)}
		if generic {
			a.Method = GenericDispatched
		}
		return []Attempt{a}
	}
	return nil
}

// describeComponents names programs with their priorities.
func describeComponents(all []libxdp.Component) string {
	if len(all) == 0 {
		return "nothing"
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = fmt.Sprintf("%s (%d)", c.Name, c.Priority)
	}
	return strings.Join(names, ", ")
}

// dispatchedOn returns a program of Jeoul's that libxdp's dispatcher runs on an interface.
func dispatchedOn(p Port) (ebpf.ProgramID, bool) {
	all, _, err := libxdp.Components(p.Index)
	if err != nil {
		return 0, false
	}
	i := slices.IndexFunc(all, func(c libxdp.Component) bool { return c.Name == objects.XDPProgJeoulXdp })
	if i < 0 {
		return 0, false
	}
	return all[i].ID, true
}

// JoinError returns the error of a program that is not in the dispatchers on interfaces, with the remedy.
func JoinError(err error, ports []Port) error {
	for _, p := range ports {
		if h := holderOf(p, NativeDispatched); h.id != 0 {
			description, remedy := h.describe()
			return fmt.Errorf("attaching to %s: %w%s, and joining it failed: %w: %s", p.Name, ErrBusy, description, err, remedy)
		}
	}
	return fmt.Errorf("joining libxdp's dispatcher failed: %w: hook: tc takes the packets that its programs pass", err)
}

// XDPHolders returns the reason why our program cannot be attached in XDP: it names the program that is.
func XDPHolders(ports []Port) string {
	for _, p := range ports {
		if h := holderOf(p, NativeXDP); h.id != 0 {
			description, _ := h.describe()
			return fmt.Sprintf("another program has XDP on %s%s", p.Name, description)
		}
	}
	return "the program cannot be in libxdp's dispatcher"
}

// HeldByAnother reports whether an error of attaching means that another program than Jeoul's is attached to the
// interface in XDP; TC works beside it.
func HeldByAnother(err error, p Port) bool {
	if !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EEXIST) {
		return false
	}
	_, ours := OursOn(p)
	return !ours
}

// RemoveDispatched removes the programs for which `ours` is true from the dispatchers on interfaces.
func RemoveDispatched(ports []Port, ours func(libxdp.Component) bool) (err error) {
	for _, p := range ports {
		all, generic, failed := libxdp.Components(p.Index)
		if failed != nil {
			if errors.Is(failed, libxdp.ErrLocked) {
				err = errors.Join(err, failed)
			}
			continue // without a dispatcher there is none of ours
		}
		var ids []ebpf.ProgramID
		for _, c := range all {
			if ours(c) {
				ids = append(ids, c.ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		place, failed := libxdp.Open(p.Index, generic)
		if failed == nil {
			failed = place.Remove(ids...)
			place.Close()
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("taking the program out of libxdp's dispatcher on %s: %w",
				p.Name, failed))
		}
	}
	return err
}

// IsOurs reports whether a component of a dispatcher is a program of any balancer of Jeoul's, or passes packets in
// place of one.
func IsOurs(c libxdp.Component) bool {
	return c.Name == objects.XDPProgJeoulXdp || c.Name == libxdp.PassName
}

// AnyOf returns a predicate for components that are one of these programs, or pass packets in place of one.
func AnyOf(ids []ebpf.ProgramID) func(libxdp.Component) bool {
	return func(c libxdp.Component) bool { return slices.Contains(ids, c.ID) || c.Name == libxdp.PassName }
}
