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

	"github.com/jeoul/jeoul/internal/hostnet"
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

// attach puts the programs on each interface, before what is there. The links
// are the caller's to close, also after an error; filters are in changes.
func attach(sides []side, interfaces []string, hook Hook, changes *hostnet.Changes) (links []link.Link, at []Attachment, err error) {
	for _, name := range interfaces {
		for _, s := range sides {
			made, used, err := s.attach(name, hook, changes)
			if err != nil {
				return links, at, err
			}
			if made != nil {
				links = append(links, made)
			}
			at = append(at, Attachment{name, used, s.egress})
		}
	}
	return links, at, nil
}

// attach returns a link where the hook is one.
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
	if err := changes.AddFilter(name, hostnet.Filter{Name: filterName, FD: s.program.FD(), Egress: s.egress}); err != nil {
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
		return fmt.Errorf("start the agent: attach to %s: %w (%v): TCX needs Linux 6.6: choose clsact", name, ErrUnsupported, err)
	}
	return fmt.Errorf("start the agent: attach to %s: %w", name, err)
}

// chooseInterfaces checks the names that were asked for, or else returns all
// interfaces on which packets for this host arrive.
func chooseInterfaces(asked []string) ([]string, error) {
	links, err := whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("start the agent: list the interfaces: %w", err)
	}
	if len(asked) > 0 {
		return checkInterfaces(asked, links)
	}
	var names []string
	for _, l := range links {
		if arrivesOn(l, links) {
			names = append(names, l.Attrs().Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("start the agent: %w: set one up, or name one that is down", ErrNoInterface)
	}
	return names, nil
}

func checkInterfaces(asked []string, links []netlink.Link) ([]string, error) {
	var names []string
	for _, name := range asked {
		at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name })
		if at < 0 {
			return nil, fmt.Errorf("start the agent: %w: %s", hostnet.ErrNoLink, name)
		}
		if !isEthernet(links[at]) {
			return nil, fmt.Errorf("start the agent: %s is no Ethernet interface", name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func isEthernet(l netlink.Link) bool {
	return l.Attrs().EncapType == "ether" && l.Attrs().Flags&net.FlagLoopback == 0
}

// arrivesOn says whether the program belongs on the interface: Ethernet, up,
// and not one whose packets run through another that has the program. A packet
// that met it twice would be counted twice, and a tunnel in a tunnel taken off
// twice. A port of a bridge or a bond gives its packets on to that; a VLAN or a
// macvlan gets them from the interface below.
func arrivesOn(l netlink.Link, links []netlink.Link) bool {
	a := l.Attrs()
	if !isEthernet(l) || a.Flags&net.FlagUp == 0 {
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
