// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Where libxdp's dispatcher has an interface, our program joins its others: it is loaded for a function of the dispatcher,
// and each program of ours that takes the place of another comes with a dispatcher of its own. What keeps it there are
// pins of libxdp's protocol, which outlive us; our sets have the program's number, by which it is found again.

// dispatched keeps a program in libxdp's dispatcher.
type dispatched struct {
	place *libxdp.Place
	id    ebpf.ProgramID
}

// join puts a program into the dispatcher on an interface, or into one that is made where the interface has no
// program.
func join(program *ebpf.Program, p port, w way) (hold, error) {
	if id, there := dispatchedOn(p); there {
		return nil, fmt.Errorf("%w: the dispatcher runs a balancer already (program id %d)", syscall.EBUSY, id)
	}
	place, err := libxdp.Open(p.index, w.generic)
	if err != nil {
		return nil, err
	}
	m := &dispatched{place: place}
	if err := m.Update(program); err != nil {
		place.Close()
		return nil, err
	}
	return m, nil
}

// Update puts another program into our place, in one step. Where ours was taken out, it is put in again.
func (h *dispatched) Update(program *ebpf.Program) error {
	c, err := libxdp.New(program, lb.RunPriority)
	if err == nil {
		err = h.place.Put(c, h.id)
	}
	if err == nil {
		h.id = c.ID
	}
	return err
}

// Close takes the program out of the dispatcher, and that off the interface where it has no other.
func (h *dispatched) Close() error {
	defer h.place.Close()
	return h.place.Remove(h.id)
}

// Leave lets go of the program, which goes on.
func (h *dispatched) Leave() error {
	h.place.Close()
	return nil
}

// rejoin puts programs back into libxdp's dispatchers that others have taken out, such as `xdp-loader unload --all`, and
// returns what is new of it.
func (d *Datapath) rejoin() (note string) {
	if !d.way.dispatched || d.current == nil {
		return ""
	}
	for i, p := range d.current.ports {
		h, is := d.holds[i].(*dispatched)
		if !is || h.there() {
			continue
		}
		if err := h.Update(d.current.programs[i]); err != nil {
			note = fmt.Sprintf("packets on %s are not balanced: the program was taken out of libxdp's dispatcher, and cannot be put back: %v", p.name, err)
			if note == d.notBack {
				return "" // that was told when it was new
			}
			d.notBack = note
			return note
		}
		note = fmt.Sprintf("another has taken the program out of libxdp's dispatcher on %s: it is put back", p.name)
	}
	d.notBack = ""
	return note
}

// there says whether the dispatcher runs the program.
func (h *dispatched) there() bool {
	all, _, err := h.place.Components()
	return err == nil && slices.ContainsFunc(all, func(c libxdp.Component) bool { return c.ID == h.id }) || errors.Is(err, libxdp.ErrLocked)
}

// joiningOn returns how to join where an interface has libxdp's dispatcher: all of them are attached to in its
// mode. It is nil where none has.
func joiningOn(ports []port) []attempt {
	for _, p := range ports {
		all, generic, err := libxdp.Components(p.index)
		if err != nil {
			continue
		}
		all = slices.DeleteFunc(all, byName)
		a := attempt{way: nativeDispatched, reason: fmt.Sprintf("libxdp's dispatcher is on %s, which runs %s: joined at run priority %d",
			p.name, describeComponents(all), lb.RunPriority)}
		if generic {
			a.way = genericDispatched
		}
		return []attempt{a}
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
func dispatchedOn(p port) (ebpf.ProgramID, bool) {
	all, _, err := libxdp.Components(p.index)
	if err != nil {
		return 0, false
	}
	i := slices.IndexFunc(all, func(c libxdp.Component) bool { return c.Name == xdpProgram.name })
	if i < 0 {
		return 0, false
	}
	return all[i].ID, true
}

// addDispatched loads the program for one more port into a slot of its dispatcher.
func (g *generation) addDispatched(program programKind, p port, spec *ebpf.CollectionSpec, replacements map[string]*ebpf.Map) error {
	target, err := libxdp.TargetOf(p.index)
	if err != nil {
		return fmt.Errorf("%w: %w", libxdp.ErrUnsupported, err)
	}
	defer target.Close()
	target.Take(spec.Programs[program.name])
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return libxdp.Refused(err)
	}
	g.collections = append(g.collections, collection)
	g.programs = append(g.programs, collection.Programs[program.name])
	return nil
}

// passingDispatched makes a program for dispatchers that passes everything.
func passingDispatched(ports []port) (*ebpf.Program, error) {
	target, err := libxdp.TargetOf(ports[0].index)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	return target.Pass()
}

// cannotJoin says why the program is not in the dispatchers on interfaces, and what to do.
func cannotJoin(err error, ports []port) error {
	for _, p := range ports {
		if h := holderOf(p, nativeDispatched); h.id != 0 {
			is, cure := h.describe()
			return fmt.Errorf("attaching to %s: %w%s, and joining it failed: %w: %s", p.name, ErrBusy, is, err, cure)
		}
	}
	return fmt.Errorf("joining libxdp's dispatcher failed: %w: hook: tc takes the packets that its programs pass", err)
}

// lackOfXDP says why XDP is not to be had on interfaces, for others have it.
func lackOfXDP(ports []port) string {
	for _, p := range ports {
		if h := holderOf(p, nativeXDP); h.id != 0 {
			is, _ := h.describe()
			return fmt.Sprintf("another program has XDP on %s%s", p.name, is)
		}
	}
	return "the program cannot be in libxdp's dispatcher"
}

// heldByAnother says whether an error of attaching means that a program of others has the interface's XDP, with which
// TC can be had.
func heldByAnother(err error, p port) bool {
	if !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EEXIST) {
		return false
	}
	_, ours := oursOn(p)
	return !ours
}

// removeDispatched takes programs out of the dispatchers on interfaces.
func removeDispatched(ports []port, ours func(libxdp.Component) bool) (err error) {
	for _, p := range ports {
		all, generic, failed := libxdp.Components(p.index)
		if failed != nil {
			if errors.Is(failed, libxdp.ErrLocked) {
				err = errors.Join(err, failed)
			}
			continue // no dispatcher is none of ours
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
		place, failed := libxdp.Open(p.index, generic)
		if failed == nil {
			failed = place.Remove(ids...)
			place.Close()
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("taking the program out of libxdp's dispatcher on %s: %w", p.name, failed))
		}
	}
	return err
}

// byName tells programs of any balancer's.
func byName(c libxdp.Component) bool {
	return c.Name == xdpProgram.name || c.Name == libxdp.PassName
}

// among tells those that a balancer has pinned, and what stood in for them.
func among(ids []ebpf.ProgramID) func(libxdp.Component) bool {
	return func(c libxdp.Component) bool { return slices.Contains(ids, c.ID) || c.Name == libxdp.PassName }
}
