// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/lb"
)

// programKind is one of the two programs.
type programKind struct {
	name string
	load func() (*ebpf.CollectionSpec, error)
}

var (
	xdpProgram = programKind{name: xdpProgJeoulXdp, load: loadXdp}
	tcProgram  = programKind{name: tcProgJeoulTc, load: loadTc}
)

// programOf returns the program for a hook.
func programOf(hook lb.Hook) programKind {
	if hook == lb.HookTC {
		return tcProgram
	}
	return xdpProgram
}

// Attachment is what is really in use.
type Attachment struct {
	Hook lb.Hook `json:"hook"`
	// Generic says that XDP runs after the driver made a socket buffer.
	Generic bool   `json:"generic"`
	Driver  string `json:"driver"`
	// Reason says why this hook, where the configuration left room.
	Reason string `json:"reason"`
}

// String returns "xdp (native)", "xdp (generic)" or "tc".
func (a Attachment) String() string {
	switch {
	case a.Hook != lb.HookXDP:
		return string(a.Hook)
	case a.Generic:
		return "xdp (generic)"
	}
	return "xdp (native)"
}

// attempt is a way to attach, and why it is taken.
type attempt struct {
	hook    lb.Hook
	generic bool
	reason  string
}

// attempts lists the ways for a wish, best first.
func attempts(wish lb.Hook, driver string) []attempt {
	native := attempt{hook: lb.HookXDP, reason: "the driver runs XDP natively"}
	generic := attempt{hook: lb.HookXDP, generic: true, reason: "the driver has no native XDP"}
	switch wish {
	case lb.HookTC:
		return []attempt{{hook: lb.HookTC, reason: "as configured"}}
	case lb.HookXDP:
		return []attempt{native, generic}
	}
	if driver == "veth" {
		// A veth sends XDP frames only to a peer that runs XDP too. The peer is
		// in a namespace we cannot look into, and nothing would count the loss.
		return []attempt{{hook: lb.HookTC,
			reason: "a veth loses XDP frames unless its peer runs XDP too; set hook: xdp if it does"}}
	}
	return []attempt{native, {hook: lb.HookTC, reason: "the driver has no native XDP"}}
}

// driverOf returns the interface's driver, or "" where it has no name for it.
func driverOf(name string) string {
	handle, err := ethtool.NewEthtool()
	if err != nil {
		return ""
	}
	defer handle.Close()
	driver, err := handle.DriverName(name)
	if err != nil {
		return ""
	}
	return driver
}

// attach hooks a program onto the interface, in native mode unless generic.
func attach(program *ebpf.Program, ifindex int, a attempt) (link.Link, error) {
	if a.hook == lb.HookTC {
		// First in line: a packet for a service is not for those behind us.
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program,
			Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	}
	flags := link.XDPDriverMode
	if a.generic {
		flags = link.XDPGenericMode
	}
	return link.AttachXDP(link.XDPOptions{Interface: ifindex, Program: program, Flags: flags})
}

// unsupported says whether an error of attach means that another way may work.
func unsupported(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, ebpf.ErrNotSupported) ||
		errors.Is(err, syscall.EINVAL)
}

// attachError says why nothing could be attached, and what to do.
func attachError(err error, name string, a attempt) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("attaching to %s: %w: run as root, or with CAP_BPF and CAP_NET_ADMIN", name, ErrNoRights)
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("attaching to %s: %w%s: stop its owner, or remove it with `ip link set dev %s xdp off`",
			name, ErrBusy, occupant(name), name)
	case a.hook == lb.HookTC && unsupported(err):
		return fmt.Errorf("attaching to %s in TC: %w (%v): TCX needs Linux 6.6 or newer; hook: xdp may work", name, ErrUnsupported, err)
	case unsupported(err):
		return fmt.Errorf("attaching to %s in XDP: %w (%v): hook: tc may work", name, ErrUnsupported, err)
	}
	return fmt.Errorf("attaching to %s in %s: %v", name, a.hook, err)
}

// occupant names the XDP program that is in the way, where that can be seen.
func occupant(name string) string {
	nl, err := netlink.LinkByName(name)
	if err != nil || nl.Attrs().Xdp == nil || nl.Attrs().Xdp.ProgId == 0 {
		return ""
	}
	id := nl.Attrs().Xdp.ProgId
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return fmt.Sprintf(" (program id %d)", id)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return fmt.Sprintf(" (program id %d)", id)
	}
	return fmt.Sprintf(" (program %q, id %d)", info.Name, id)
}
