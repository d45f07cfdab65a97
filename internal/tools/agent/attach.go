// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
)

// Attachment is a place where a program runs.
type Attachment struct {
	Interface string
	Hook      Hook // HookTCX or HookClsact
	Egress    bool
}

// String returns "eth0 ingress (tcx)".
func (a Attachment) String() string {
	where := "ingress"
	if a.Egress {
		where = "egress"
	}
	return fmt.Sprintf("%s %s (%s)", a.Interface, where, a.Hook)
}

// side is a program and the side of an interface that it is attached to.
type side struct {
	program *ebpf.Program
	egress  bool
}

// sides returns the programs that the options require.
func (p *program) sides(opt Options) (all []side) {
	if opt.needsIngress() {
		all = append(all, side{p.ingress, false})
	}
	if opt.MSS != 0 {
		all = append(all, side{p.egress, true})
	}
	return all
}

// attached is an interface on which the programs run.
type attached struct {
	index int
	name  string
	// asked is the name of the interface when the programs were attached. It may have been renamed since.
	asked string
	sides []attachedSide
}

// attachedSide is a program that is attached.
type attachedSide struct {
	side
	hook Hook
	link link.Link // nil with HookClsact
}

// attach attaches the programs to an interface, before other programs; on an error, none. The caller holds the lock, or
// has the only reference.
func (a *Agent) attach(nic netlink.Link, asked string) error {
	on := &attached{index: nic.Attrs().Index, name: nic.Attrs().Name, asked: asked}
	for _, s := range a.program.sides(a.opt) {
		made, used, err := s.attach(on.name, a.opt.Hook, a.changes)
		if err != nil {
			return errors.Join(err, a.detach(on))
		}
		on.sides = append(on.sides, attachedSide{s, used, made})
	}
	a.attached = append(a.attached, on)
	return nil
}

// detach detaches the programs from an interface, which may no longer exist. The caller holds the lock.
func (a *Agent) detach(on *attached) error {
	a.attached = slices.DeleteFunc(a.attached, func(o *attached) bool { return o == on })
	return errors.Join(on.closeLinks(), a.changes.RemoveFilters(on.index))
}

func (on *attached) closeLinks() error {
	var failed []error
	for _, s := range on.sides {
		if s.link != nil {
			failed = append(failed, s.link.Close())
		}
	}
	return errors.Join(failed...)
}

// works reports whether the programs are still attached: another program may have detached one.
func (on *attached) works(changes *hostnet.Changes) (bool, error) {
	for _, s := range on.sides {
		if s.link == nil {
			if there, err := changes.HasFilter(on.index, filterName, s.egress); err != nil || !there {
				return false, err
			}
			continue
		}
		info, err := s.link.Info()
		if err != nil {
			return false, fmt.Errorf("look whether the eBPF program is attached to %s: %w", on.name, err)
		}
		// The kernel reports the index 0 for a link that was detached (link_tcx_fill in kernel/bpf/tcx.c).
		if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != on.index {
			return false, nil
		}
	}
	return true, nil
}

// attach attaches the program. It returns a link if the hook uses one.
func (s side) attach(name string, hook Hook, changes *hostnet.Changes) (link.Link, Hook, error) {
	if hook != HookClsact {
		made, err := s.attachTCX(name)
		if err == nil {
			return made, HookTCX, nil
		}
		if hook == HookTCX || !unsupported(err) {
			return nil, "", attachError(err, name)
		}
	}
	if err := changes.AddFilter(name, hostnet.Filter{Name: filterName, FD: s.program.FD(),
		Egress: s.egress}); err != nil {
		return nil, "", fmt.Errorf("start the agent: %w", err)
	}
	return nil, HookClsact, nil
}

func (s side) attachTCX(name string) (link.Link, error) {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	where := ebpf.AttachTCXIngress
	if s.egress {
		where = ebpf.AttachTCXEgress
	}
	return link.AttachTCX(link.TCXOptions{Interface: nic.Index, Program: s.program, Attach: where, Anchor: link.Head()})
}

// unsupported reports whether an error means that the kernel has no TCX.
func unsupported(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL)
}

func attachError(err error, name string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("start the agent: attach to %s: %w (%v), and with CAP_BPF", name, hostnet.ErrNoRights, err)
	case unsupported(err):
		return fmt.Errorf("start the agent: attach to %s: %w (%v): TCX needs Linux 6.6: choose clsact", name,
			ErrUnsupported, err)
	}
	return fmt.Errorf("start the agent: attach to %s: %w", name, err)
}
