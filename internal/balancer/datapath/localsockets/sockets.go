// SPDX-License-Identifier: Apache-2.0

// Package localsockets serves clients on the balancer's own host at the sockets of a control group: it loads the
// programs with the memory of a generation, attaches, replaces, pins and finds them, and reads their counters. A change
// applies to both packets and sockets, or is undone for both.
package localsockets

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/host/deadcode"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// Packets of clients on the balancer's own host for a VIP never arrive on an interface. Programs at the socket hooks of
// a control group assign a socket its backend when it connects or sends (bpf/balancer/local/). They read the memory of
// the generation, so that a change applies to sockets and packets at once, and are loaded again with each generation.

// socketHooks are the hooks to which the programs are attached, with the programs' names in the object.
var socketHooks = []struct {
	program string
	at      ebpf.AttachType
}{
	// First, because it removes the entries of closed sockets, also while only some programs are attached.
	{objects.LocalProgJeoulRelease, ebpf.AttachCgroupInetSockRelease},
	{objects.LocalProgJeoulPeername4, ebpf.AttachCgroupInet4GetPeername},
	{objects.LocalProgJeoulPeername6, ebpf.AttachCgroupInet6GetPeername},
	{objects.LocalProgJeoulRecvmsg4, ebpf.AttachCGroupUDP4Recvmsg},
	{objects.LocalProgJeoulRecvmsg6, ebpf.AttachCGroupUDP6Recvmsg},
	{objects.LocalProgJeoulSendmsg4, ebpf.AttachCGroupUDP4Sendmsg},
	{objects.LocalProgJeoulSendmsg6, ebpf.AttachCGroupUDP6Sendmsg},
	{objects.LocalProgJeoulConnect4, ebpf.AttachCGroupInet4Connect},
	{objects.LocalProgJeoulConnect6, ebpf.AttachCGroupInet6Connect},
}

// ErrNotServed says that clients on this host cannot be served.
var ErrNotServed = errors.New("clients on this host cannot be served")

// Sockets are the programs at a control group's socket hooks, and their maps.
type Sockets struct {
	// cgroup is the directory of the control group, and id its inode number.
	cgroup string
	id     uint64
	// holds[i] keeps programs[i] attached to socketHooks[i].
	holds    []attach.Hold
	programs []*ebpf.Program
	// known and events are the programs' maps: the table of sockets, which generations share that serve the same
	// sockets, and the counters, which all share.
	known, events *ebpf.Map
	// ns is the network namespace of the sockets, and aborter the program that aborts some of them; nil where missing
	// says why there is none.
	ns      *namespace.Namespace
	aborter *ebpf.Program
	missing string
}

// Cgroup returns the control group in use; empty: none.
func (s *Sockets) Cgroup() string {
	if s == nil {
		return ""
	}
	return s.cgroup
}

// Maps returns the programs' maps by their names in the object.
func (s *Sockets) Maps() map[string]*ebpf.Map {
	if s == nil {
		return nil
	}
	return map[string]*ebpf.Map{objects.LocalMapLocalSockets: s.known, objects.LocalMapLocalEvents: s.events}
}

// Pinned returns the objects that the next process opens, by the names of their pins in a set: the maps, and the
// programs, which only CAP_SYS_ADMIN could open by the links.
func (s *Sockets) Pinned() map[string]pins.Pinner {
	pinned := map[string]pins.Pinner{}
	for name, m := range s.Maps() {
		pinned[name] = keeper.MapPin{Map: m}
	}
	if s != nil {
		for i, p := range s.programs {
			pinned[programPin(i)] = keeper.ProgramPinner{Program: p}
		}
	}
	return pinned
}

// programPin returns the name of the pin of a hook's program in a set.
func programPin(hook int) string { return "local-" + socketHooks[hook].program }

// CloseUnless closes the handles that other does not share. Attached programs stay.
func (s *Sockets) CloseUnless(other *Sockets) {
	if s == nil || s == other {
		return
	}
	for _, p := range s.programs {
		p.Close()
	}
	if s.aborter != nil {
		s.aborter.Close()
	}
	if s.ns != nil {
		s.ns.Close()
	}
	for name, m := range s.Maps() {
		if m != nil && other.Maps()[name] != m {
			m.Close()
		}
	}
}

// Detach detaches the programs from their hooks.
func (s *Sockets) Detach() error {
	if s == nil {
		return nil
	}
	if err := attach.CloseAll(s.holds); err != nil {
		return fmt.Errorf("detaching from the sockets of %s: %w", s.cgroup, err)
	}
	return nil
}

// Release closes the handles of the links; the programs stay attached.
func (s *Sockets) Release() (err error) {
	if s == nil {
		return nil
	}
	for _, h := range s.holds {
		if l, ok := h.(attach.Releaser); ok {
			err = errors.Join(err, l.Release())
		}
	}
	return err
}

// ports returns the hooks' names as ports, for errors of attach.SwapAll.
func (s *Sockets) ports() []attach.Port {
	all := make([]attach.Port, len(socketHooks))
	for i, hook := range socketHooks {
		all[i].Name = fmt.Sprintf("%s (%s)", s.cgroup, hook.program)
	}
	return all
}

// loadSockets loads the programs for the sockets of a control group, with the memory of the next generation. before are
// the programs in use, nil where there are none.
func loadSockets(cgroup string, m *generation.Memory, shared *sharedmaps.Maps, before *Sockets) (
	*Sockets, error,
) {
	sockets := &Sockets{cgroup: cgroup}
	var stat unix.Stat_t
	if err := unix.Stat(cgroup, &stat); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrNotServed, cgroup, err)
	}
	sockets.id = stat.Ino
	var err error
	if sockets.ns, err = namespace.Current(); err != nil {
		return nil, err
	}
	settings, err := socketSettings(sockets.ns)
	if err != nil {
		sockets.ns.Close()
		return nil, err
	}
	spec, err := objects.Local.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	if err := sockets.shareMaps(spec, before); err != nil {
		sockets.ns.Close()
		return nil, err
	}
	spec.Maps[objects.GenerationSection].ValueSize = m.Map.ValueSize()
	shared.SetSizes(spec)
	replacements := shared.ByName()
	maps.Copy(replacements, sockets.Maps())
	replacements[objects.GenerationSection] = m.Map
	if err := errors.Join(spec.Variables[objects.LocalVarLoaded].Set(m.Constants),
		spec.Variables[objects.LocalVarLocal].Set(settings)); err != nil {
		sockets.CloseUnless(before)
		return nil, fmt.Errorf("setting the program's constants: %v", err)
	}
	if err := deadcode.Remove(spec); err != nil {
		sockets.CloseUnless(before)
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		sockets.CloseUnless(before)
		return nil, fmt.Errorf("%w: %s: %v", ErrNotServed, cgroup, attach.LoadError(err))
	}
	defer collection.Close()
	for _, hook := range socketHooks {
		sockets.programs = append(sockets.programs, collection.DetachProgram(hook.program))
	}
	if err := sockets.loadAborter(m, shared); err != nil {
		sockets.missing = fmt.Sprintf(
			"a connected UDP socket stays with a backend that is gone (Linux 6.5 and later can end it): %v", err)
	}
	return sockets, nil
}

// shareMaps shares the maps in use, or creates them. The table of sockets is shared only if the programs notice when
// these sockets are closed: entries that no program removes would count for ever.
func (s *Sockets) shareMaps(spec *ebpf.CollectionSpec, before *Sockets) (err error) {
	if before != nil {
		s.events = before.events
	} else if s.events, err = sharedmaps.MakeLike(objects.LocalMapLocalEvents,
		spec.Maps[objects.LocalMapLocalEvents]); err != nil {
		return err
	}
	if s.serves(before) {
		s.known = before.known
		return nil
	}
	s.known, err = sharedmaps.MakeLike(objects.LocalMapLocalSockets, spec.Maps[objects.LocalMapLocalSockets])
	if err != nil && before == nil {
		s.events.Close()
	}
	return err
}

// serves reports whether the programs run for the sockets of other programs' control group too: it is the same group,
// or one below.
func (s *Sockets) serves(other *Sockets) bool {
	if s == nil || other == nil {
		return false
	}
	if s.id == other.id {
		return true
	}
	// The path of a group that an earlier process has attached to is unknown. Another group of the same path has
	// replaced one that was removed.
	below, err := filepath.Rel(s.cgroup, other.cgroup)
	return err == nil && below != "." && filepath.IsLocal(below)
}

// socketSettings returns the programs' settings for this host. By them the programs ignore sockets of other network
// namespaces: a container has its own, though its control group is below the host's.
func socketSettings(ns *namespace.Namespace) (settings objects.LocalLocalSettings, err error) {
	if settings.Netns, err = ns.Cookie(); err != nil {
		return settings, err
	}
	if settings.Netns == 0 {
		return settings, fmt.Errorf("%w: the kernel does not number network namespaces (Linux 5.14 brought it)",
			ErrNotServed)
	}
	// Linux 5.18 introduced the helper; before, a refused application gets EPERM. Linux 7.3 has it and rejects the
	// probe's argument: only the error ErrNotSupported means that it is missing.
	if err := features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval); !errors.Is(err, ebpf.ErrNotSupported) {
		settings.Errors = 1
	}
	return settings, nil
}

// attach attaches all programs to a control group that has none of ours, or none.
func (s *Sockets) attach(k *keeper.Keeper) error {
	for i, hook := range socketHooks {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: s.cgroup, Attach: hook.at, Program: s.programs[i]})
		if err != nil {
			return errors.Join(socketError(err, s.cgroup, hook.program), attach.CloseAll(s.holds))
		}
		var h attach.Hold = l
		if k != nil {
			if err := l.Pin(k.Store.Path("", s.linkPin(i))); err != nil {
				k.NotePinError(fmt.Errorf("pinning the link to the sockets of %s: %w", s.cgroup, err))
			}
			h = attach.PinnedLink{Link: l}
		}
		s.holds = append(s.holds, h)
	}
	return nil
}

// socketError explains why programs could not be attached to a control group, with the remedy.
func socketError(err error, cgroup, program string) error {
	at := fmt.Sprintf("attaching %s to the sockets of %s", program, cgroup)
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf(
			"%w: %s: %v: another program is attached there, or to a control group above, that allows no other (`bpftool cgroup tree` shows them), or the rights CAP_BPF and CAP_NET_ADMIN are missing", ErrNotServed, at, err)
	case attach.Unsupported(err):
		return fmt.Errorf("%w: %s: %v: it needs Linux 5.14 or newer with CONFIG_CGROUP_BPF", ErrNotServed, at, err)
	}
	return fmt.Errorf("%w: %s: %v", ErrNotServed, at, err)
}

// Change is a change of the programs at sockets, together with the generation.
type Change struct {
	// Before and Next are nil where no programs are attached.
	Before, Next *Sockets
}

// Begin attaches the programs for a new memory, and replaces those of before, which is nil where there are none. Later
// steps of the change may fail: Undo reverts Begin, and Finish detaches the previous programs.
func Begin(before *Sockets, k *keeper.Keeper, cgroup string, m *generation.Memory, shared *sharedmaps.Maps) (
	*Change, error,
) {
	c := &Change{Before: before}
	if cgroup == "" {
		return c, nil
	}
	var err error
	if c.Next, err = loadSockets(cgroup, m, shared, before); err != nil {
		return nil, err
	}
	if c.stays() {
		c.Next.holds = c.Before.holds
		err = attach.SwapAll(c.Next.holds, c.Next.ports(), c.Next.programs, c.Before.programs)
	} else {
		err = c.Next.attach(k)
	}
	if err != nil {
		c.Next.CloseUnless(c.Before)
		return nil, err
	}
	return c, nil
}

// InUse returns the programs that are attached now: until Finish, also those whose control group is no longer
// configured.
func (c *Change) InUse() *Sockets {
	if c.Next == nil {
		return c.Before
	}
	return c.Next
}

// stays reports whether the control group is the same before and after.
func (c *Change) stays() bool {
	return c.Before != nil && c.Next != nil && c.Before.id == c.Next.id
}

// Undo reverts Begin: the previous programs are in use again.
func (c *Change) Undo() (err error) {
	if c.Next == nil {
		return nil
	}
	if c.stays() {
		err = attach.SwapAll(c.Next.holds, c.Next.ports(), c.Before.programs, c.Next.programs)
	} else {
		err = c.Next.Detach()
	}
	c.Next.CloseUnless(c.Before)
	return err
}

// Finish detaches programs that are no longer configured: from then on the next ones are in use, nil where there are
// none. After an error, a program of an earlier memory is still attached.
func (c *Change) Finish(k *keeper.Keeper, shared *sharedmaps.Maps) error {
	if c.Before == nil {
		return nil
	}
	var err error
	if !c.stays() {
		err = c.Before.Detach()
	}
	if c.Next == nil && err == nil {
		k.Unpin(slices.Collect(maps.Keys(c.Before.Pinned())))
	}
	if !c.Next.serves(c.Before) {
		c.Before.uncount(shared)
	}
	return err
}

// Release closes the previous programs, once no reader uses them.
func (c *Change) Release() { c.Before.CloseUnless(c.Next) }

// linkPin returns the name of the pin of the link to a hook. While the control group changes, each hook has two.
func (s *Sockets) linkPin(hook int) string {
	return fmt.Sprintf("%s%d-%s", keeper.SocketPrefix, s.id, socketHooks[hook].program)
}

// Repin pins the links in an empty directory.
func (s *Sockets) Repin(k *keeper.Keeper) error {
	if s == nil {
		return nil
	}
	for i, h := range s.holds {
		l, ok := h.(attach.PinnedLink)
		if !ok {
			continue
		}
		if err := errors.Join(l.Unpin(), l.Pin(k.Store.Path("", s.linkPin(i)))); err != nil {
			return fmt.Errorf("pinning the link to the sockets of %s: %w", s.cgroup, err)
		}
	}
	return nil
}

// hookNamed returns the index of the hook of a program's name; -1: none.
func hookNamed(program string) int {
	return slices.IndexFunc(socketHooks, func(h struct {
		program string
		at      ebpf.AttachType
	}) bool {
		return h.program == program
	})
}
