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

// Hook is how the program is put at the ingress of an interface.
type Hook string

// The hooks.
const (
	// HookAuto takes TCX where the kernel has it.
	HookAuto Hook = "auto"
	// HookTCX is a link (Linux 6.6), which ends with the process.
	HookTCX Hook = "tcx"
	// HookClsact is a filter of the queueing discipline clsact, which stays
	// until it is taken away.
	HookClsact Hook = "clsact"
)

// filterName is how `tc filter show dev DEV ingress` shows a program, and at the
// egress.
const filterName = "jeoul_agent"

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

// side is a program and where it belongs.
type side struct {
	program *ebpf.Program
	egress  bool
}

// sides are the programs that the options ask for.
func (p *program) sides(opt Options) (all []side) {
	if opt.undoes() {
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
	// asked is the name that the interface had when the programs were attached: it may have another one now.
	asked string
	sides []attachedSide
}

// attachedSide is a program that is attached.
type attachedSide struct {
	side
	hook Hook
	link link.Link // nil with HookClsact
}

// attach puts the programs on an interface, before those of others; on an error, none. The caller holds the lock, or
// nobody else has the agent yet.
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

// detach takes the programs off an interface, which may be gone; the caller holds the lock.
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

// works says whether the programs are where they were attached: something else may have taken one away.
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
		// The kernel gives the index 0 where the link was detached (link_tcx_fill in kernel/bpf/tcx.c).
		if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != on.index {
			return false, nil
		}
	}
	return true, nil
}

// attach returns a link where the hook is attached by one.
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

// unsupported says whether an error means that the kernel has no TCX.
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

// chooseInterfaces checks the names that were asked for, or else returns all
// interfaces on which packets for this host arrive.
func chooseInterfaces(asked []string, links []netlink.Link) (chosen []netlink.Link, err error) {
	if len(asked) > 0 {
		return checkInterfaces(asked, links)
	}
	for _, l := range links {
		if arrivesOn(l, links) && isUp(l) {
			chosen = append(chosen, l)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("start the agent: %w: set one up, or name one that is down", ErrNoInterface)
	}
	return chosen, nil
}

func checkInterfaces(asked []string, links []netlink.Link) (chosen []netlink.Link, err error) {
	for _, name := range asked {
		l := byName(links, name)
		if l == nil {
			return nil, fmt.Errorf("start the agent: %w: %s", hostnet.ErrNoLink, name)
		}
		if !isEthernet(l) {
			return nil, fmt.Errorf("start the agent: %s is no Ethernet interface", name)
		}
		if !slices.Contains(chosen, l) {
			chosen = append(chosen, l)
		}
	}
	return chosen, nil
}

func byName(links []netlink.Link, name string) netlink.Link {
	for _, l := range links {
		if l.Attrs().Name == name {
			return l
		}
	}
	return nil
}

func isEthernet(l netlink.Link) bool {
	return l.Attrs().EncapType == "ether" && l.Attrs().Flags&net.FlagLoopback == 0
}

// arrivesOn says whether the program belongs on the interface once it is up: Ethernet,
// and not one whose packets run through another that has the program. A packet
// that met it twice would be counted twice, and a tunnel in a tunnel taken off
// twice. A port of a bridge or a bond gives its packets on to that; a VLAN or a
// macvlan gets them from the interface below.
func arrivesOn(l netlink.Link, links []netlink.Link) bool {
	a := l.Attrs()
	if !isEthernet(l) {
		return false
	}
	if master := byIndex(links, a.MasterIndex); master != nil && master.Type() != "vrf" {
		return false
	}
	switch l.Type() {
	case "vlan", "macvlan", "ipvlan":
		// Below may be in another namespace, and then not be here to be asked.
		return a.NetNsID >= 0 || byIndex(links, a.ParentIndex) == nil
	case "vrf":
		return false
	}
	return true
}

func byIndex(links []netlink.Link, index int) netlink.Link {
	for _, l := range links {
		if index != 0 && l.Attrs().Index == index {
			return l
		}
	}
	return nil
}

// hasTCX asks the kernel without attaching anything.
func hasTCX(index int) bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
	return err == nil
}
