// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// programKind is one of the two programs.
type programKind struct {
	name string
	load func() (*ebpf.CollectionSpec, error)
	// traced returns the same program, compiled to tell of packets.
	traced func() (*ebpf.CollectionSpec, error)
	// unspecific loads it without an attach type. A link takes only programs of the type that
	// the first had, and the library has not always given one.
	unspecific bool
	// dispatched loads it for a slot of libxdp's dispatcher.
	dispatched bool
}

var (
	xdpProgram = programKind{name: objects.XDPProgJeoulXdp, load: objects.XDP.Spec, traced: objects.Embed(traced.LoadXdp).Spec}
	tcProgram  = programKind{name: objects.TCProgJeoulTc, load: objects.TC.Spec, traced: objects.Embed(traced.LoadTc).Spec}
)

// programOf returns the program for a hook.
func programOf(hook lb.Hook) programKind {
	if hook == lb.HookTC {
		return tcProgram
	}
	return xdpProgram
}

// kindOf returns the program for a way.
func (d *Datapath) kindOf(w way) programKind {
	kind := d.programs(w.hook)
	kind.dispatched = w.dispatched
	return kind
}

// attachments describes what is in use once every interface is attached to.
func attachments(ports []port, w way, reason string) []lb.Attachment {
	all := make([]lb.Attachment, len(ports))
	for i, p := range ports {
		all[i] = lb.Attachment{Interface: p.name, Hook: w.hook, Generic: w.generic, Driver: driverOf(p.name), Reason: reason}
		if w.hook == lb.HookXDP && !w.generic && all[i].Driver == vethDriver && !peerTakesXDP(p.name) {
			all[i].Warning = p.name + vethLoses + ": give the peer one that passes everything, or set hook: tc"
		}
	}
	return all
}

// way is how programs are attached, to all interfaces alike: an XDP frame that
// one redirects to another is lost where that one has no native XDP.
type way struct {
	hook lb.Hook
	name string
	// generic is XDP after the driver made a socket buffer; dispatched is a program in libxdp's dispatcher.
	generic, dispatched bool
}

var (
	nativeXDP         = way{hook: lb.HookXDP, name: "native XDP"}
	genericXDP        = way{hook: lb.HookXDP, name: "generic XDP", generic: true}
	nativeDispatched  = way{hook: lb.HookXDP, name: "libxdp's dispatcher in native XDP", dispatched: true}
	genericDispatched = way{hook: lb.HookXDP, name: "libxdp's dispatcher in generic XDP", dispatched: true, generic: true}
	tcx               = way{hook: lb.HookTC, name: "TCX"}
	tcFilter          = way{hook: lb.HookTC, name: "a TC filter"}
)

// lack says what an interface that refused has not.
func (w way) lack(p port) string {
	if w.dispatched {
		return fmt.Sprintf("libxdp's dispatcher on %s cannot have the program", p.name)
	}
	if w == tcx {
		return "the kernel has no TCX (Linux 6.6 brought it), so it is a filter"
	}
	return fmt.Sprintf("the driver of %s has no %s", p.name, w.name)
}

// attempt is a way to attach, and why it is taken.
type attempt struct {
	way way
	// reason is empty where what the attempts before it lacked is the reason.
	reason string
}

// because returns the whole reason, after attempts that lacked something.
func (a attempt) because(lacks []string) string {
	if a.reason != "" {
		lacks = append([]string{a.reason}, lacks...)
	}
	return strings.Join(lacks, "; ")
}

// attempts lists the ways for a wish, best first.
func attempts(wish lb.Hook, ports []port) []attempt {
	native := attempt{way: nativeXDP, reason: "the driver runs XDP natively"}
	if len(ports) > 1 {
		native.reason = "all drivers run XDP natively"
	}
	switch wish {
	case lb.HookTC:
		return throughTC("as configured")
	case lb.HookXDP:
		if joining := joiningOn(ports); joining != nil {
			return joining
		}
		native.reason += hiddenByPeers(ports)
		return []attempt{native, {way: genericXDP}}
	}
	for _, p := range ports {
		if driverOf(p.name) == vethDriver {
			return throughTC(p.name + vethLoses + "; set hook: xdp if it has")
		}
	}
	if joining := joiningOn(ports); joining != nil {
		return append(joining, throughTC("")...)
	}
	return append([]attempt{native}, throughTC("")...)
}

// A veth gives frames of XDP to its peer's NAPI instance only, and wakes that only where the
// peer runs XDP (veth_xdp_xmit and veth_xdp_flush in the kernel's drivers/net/veth.c). With
// GRO on, which makes such an instance too, they wait there unnoticed, and are counted as
// sent. The peer is usually in a namespace that cannot be looked into.
const (
	vethDriver = "veth"
	vethLoses  = " is a veth, which loses the frames that XDP sends unless its peer has an XDP program, too"
)

// peerTakesXDP says whether a veth's peer is in this namespace and is seen to run XDP.
func peerTakesXDP(name string) bool {
	link, err := netlink.LinkByName(name)
	if err != nil || link.Attrs().NetNsID >= 0 {
		return false
	}
	peer, err := netlink.LinkByIndex(link.Attrs().ParentIndex)
	return err == nil && peer.Attrs().Xdp != nil && peer.Attrs().Xdp.Attached
}

// throughTC lists the ways to attach in TC.
func throughTC(reason string) []attempt {
	return []attempt{{way: tcx, reason: reason}, {way: tcFilter, reason: reason}}
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

// hold keeps a program on an interface.
type hold interface {
	// Update puts another program in its place, in one step.
	Update(*ebpf.Program) error
	// Close takes the program off the interface.
	Close() error
}

// attachAll hooks programs[i] onto ports[i], all of them or none. On an error
// it returns the port that refused too.
func (d *Datapath) attachAll(programs []*ebpf.Program, ports []port, w way) ([]hold, port, error) {
	var holds []hold
	for i, p := range ports {
		h, err := d.attach(programs[i], p, w)
		if err != nil {
			return nil, p, errors.Join(err, closeAll(holds))
		}
		holds = append(holds, h)
	}
	return holds, port{}, nil
}

// closeAll takes programs off their interfaces.
func closeAll(holds []hold) (err error) {
	for _, h := range holds {
		err = errors.Join(err, h.Close())
	}
	return err
}

// leftover keeps a program on an interface that another process has put there.
type leftover struct {
	hold hold
	way  way
	// index is the interface's.
	index int
}

func holdsOf(leftovers []leftover) (holds []hold) {
	for _, l := range leftovers {
		holds = append(holds, l.hold)
	}
	return holds
}

// attach hooks a program onto an interface, and keeps it there. It takes the place of what
// another process has left there.
func (d *Datapath) attach(program *ebpf.Program, p port, w way) (hold, error) {
	if i := slices.IndexFunc(d.leftovers, func(l leftover) bool { return l.way == w && l.index == p.index }); i >= 0 {
		left := d.leftovers[i].hold
		d.leftovers = slices.Delete(d.leftovers, i, i+1)
		if left.Update(program) == nil {
			return left, nil
		}
		if err := left.Close(); err != nil {
			return nil, err
		}
	}
	h, err := attach(program, p, w, d.options.Clsact)
	if err != nil {
		return nil, err
	}
	return d.keeper.hold(h, w, p), nil
}

// attach hooks a program onto an interface.
func attach(program *ebpf.Program, p port, w way, clsact giveClsact) (hold, error) {
	switch w {
	case nativeDispatched, genericDispatched:
		return join(program, p, w)
	case tcx:
		if _, is := secondOf(p); is {
			return nil, syscall.EBUSY
		}
		// First in line: a packet for a service is not for those behind us.
		return link.AttachTCX(link.TCXOptions{Interface: p.index, Program: program,
			Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	case tcFilter:
		return attachFilter(program, p, clsact)
	case genericXDP:
		return link.AttachXDP(link.XDPOptions{Interface: p.index, Program: program, Flags: link.XDPGenericMode})
	}
	return link.AttachXDP(link.XDPOptions{Interface: p.index, Program: program, Flags: link.XDPDriverMode})
}

// unsupported says whether an error of attach means that another way may work.
func unsupported(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, ebpf.ErrNotSupported) ||
		errors.Is(err, syscall.EINVAL)
}

// attachError says why nothing could be attached, and what to do.
func attachError(err error, p port, w way) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("attaching to %s: %w: run as root, or with CAP_BPF and CAP_NET_ADMIN", p.name, ErrNoRights)
	case w == tcFilter && errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("attaching to %s in TC: %w (%v): see `tc filter show dev %s ingress`, and remove or move it", p.name, ErrBusy, err, p.name)
	case errors.Is(err, syscall.EBUSY), w.hook == lb.HookXDP && errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("attaching to %s: %w%s", p.name, ErrBusy, holderOf(p, w))
	case w.dispatched:
		return fmt.Errorf("attaching to %s: joining libxdp's dispatcher: %w: hook: tc takes the packets that its programs pass", p.name, err)
	case w.hook == lb.HookTC && (unsupported(err) || errors.Is(err, syscall.ENOENT)):
		return fmt.Errorf("attaching to %s in TC: %w (%v): it needs Linux 6.6 or newer, or the kernel modules sch_ingress and cls_bpf; hook: xdp may work",
			p.name, ErrUnsupported, err)
	case unsupported(err):
		return fmt.Errorf("attaching to %s in XDP: %w (%v): hook: tc may work", p.name, ErrUnsupported, err)
	}
	return fmt.Errorf("attaching to %s in %s: %v", p.name, w.name, err)
}
