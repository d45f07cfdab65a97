// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Describe describes the attachments once every interface is attached to, for the status.
func Describe(ports []Port, m Method, reason string) []lb.Attachment {
	all := make([]lb.Attachment, len(ports))
	for i, p := range ports {
		all[i] = lb.Attachment{Interface: p.Name, Hook: m.Hook, Generic: m.Generic, Driver: DriverOf(p.Name),
			Reason: reason}
		if m.Hook == lb.HookXDP && !m.Generic && all[i].Driver == vethDriver && !peerTakesXDP(p.Name) {
			all[i].Warning = p.Name + vethLossWarning + ": give the peer one that passes everything, or set hook: tc"
		}
	}
	return all
}

// Method is how programs are attached, the same for all interfaces: a frame that XDP redirects to an interface without
// native XDP is lost.
type Method struct {
	Hook lb.Hook
	// Name is used in messages, after "in".
	Name string
	// Generic is XDP after the driver has allocated a socket buffer; Dispatched is a program in libxdp's dispatcher.
	Generic, Dispatched bool
}

// The methods of attaching.
var (
	NativeXDP         = Method{Hook: lb.HookXDP, Name: "native XDP"}
	GenericXDP        = Method{Hook: lb.HookXDP, Name: "generic XDP", Generic: true}
	NativeDispatched  = Method{Hook: lb.HookXDP, Name: "libxdp's dispatcher in native XDP", Dispatched: true}
	GenericDispatched = Method{Hook: lb.HookXDP, Name: "libxdp's dispatcher in generic XDP", Dispatched: true,
		Generic: true}
	TCX      = Method{Hook: lb.HookTC, Name: "TCX"}
	TCFilter = Method{Hook: lb.HookTC, Name: "a TC filter"}
)

// MissingCapability returns why an interface does not take a program by the method; err is the error of Attach, nil
// where it is not known any more.
func (m Method) MissingCapability(p Port, err error) string {
	if m.Dispatched {
		return fmt.Sprintf("libxdp's dispatcher on %s cannot have the program", p.Name)
	}
	if m == TCX {
		return "the kernel has no TCX (Linux 6.6 brought it), so it is a filter"
	}
	if m == NativeXDP && err != nil && !errors.Is(err, syscall.EOPNOTSUPP) {
		return fmt.Sprintf("the driver of %s refuses native XDP (%v), which it does for too many queues (see "+
			"`ethtool -l %s`), for a large MTU, or for LRO: the kernel's log may say which", p.Name, err, p.Name)
	}
	return fmt.Sprintf("the driver of %s has no %s", p.Name, m.Name)
}

// Attempt is a method to try, and the reason for it.
type Attempt struct {
	Method Method
	// Reason is empty where the only reason is that earlier attempts have failed.
	Reason string
}

// FullReason returns the complete reason, after attempts that have failed for these reasons.
func (a Attempt) FullReason(reasons []string) string {
	if a.Reason != "" {
		reasons = append([]string{a.Reason}, reasons...)
	}
	return strings.Join(reasons, "; ")
}

// Attempts lists the methods for the hook that a configuration asks for, best first.
func Attempts(requested lb.Hook, ports []Port) []Attempt {
	native := Attempt{Method: NativeXDP, Reason: "the driver runs XDP natively"}
	if len(ports) > 1 {
		native.Reason = "all drivers run XDP natively"
	}
	switch requested {
	case lb.HookTC:
		return tcAttempts("as configured")
	case lb.HookXDP:
		if joining := dispatcherAttempts(ports); joining != nil {
			return joining
		}
		native.Reason += strippingPeers(ports)
		return []Attempt{native, {Method: GenericXDP}}
	}
	for _, p := range ports {
		if DriverOf(p.Name) == vethDriver {
			return tcAttempts(p.Name + vethLossWarning + "; set hook: xdp if it has")
		}
	}
	if joining := dispatcherAttempts(ports); joining != nil {
		return append(joining, tcAttempts("")...)
	}
	return append([]Attempt{native}, tcAttempts("")...)
}

// A veth passes frames that XDP sends to its peer's NAPI instance only, and schedules that only where the peer runs XDP
// (veth_xdp_xmit and veth_xdp_flush in the kernel's drivers/net/veth.c). With GRO on, which creates such an instance
// too, the frames stay in its queue, and are counted as sent. The peer is usually in a namespace that we cannot
// inspect.
const (
	vethDriver      = "veth"
	vethLossWarning = " is a veth, which loses the frames that XDP sends unless its peer has an XDP program, too"
)

// peerTakesXDP reports whether a veth's peer is in this namespace and runs XDP.
func peerTakesXDP(name string) bool {
	link, err := netlink.LinkByName(name)
	if err != nil || link.Attrs().NetNsID >= 0 {
		return false
	}
	peer, err := netlink.LinkByIndex(link.Attrs().ParentIndex)
	return err == nil && peer.Attrs().Xdp != nil && peer.Attrs().Xdp.Attached
}

// tcAttempts lists the methods of TC.
func tcAttempts(reason string) []Attempt {
	return []Attempt{{Method: TCX, Reason: reason}, {Method: TCFilter, Reason: reason}}
}

// DriverOf returns the interface's driver, or "" where it has no name for it.
func DriverOf(name string) string {
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

// Attach attaches a program to an interface. Explain explains its errors.
func Attach(program *ebpf.Program, p Port, m Method, clsact WithClsact) (Hold, error) {
	switch m {
	case NativeDispatched, GenericDispatched:
		return joinDispatcher(program, p, m)
	case TCX:
		if _, ok := otherBalancerOn(p); ok {
			return nil, syscall.EBUSY
		}
		// Before all others: a packet for a service is not for programs after ours.
		return link.AttachTCX(link.TCXOptions{Interface: p.Index, Program: program,
			Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	case TCFilter:
		return attachFilter(program, p, clsact)
	case GenericXDP:
		return link.AttachXDP(link.XDPOptions{Interface: p.Index, Program: program, Flags: link.XDPGenericMode})
	}
	return link.AttachXDP(link.XDPOptions{Interface: p.Index, Program: program, Flags: link.XDPDriverMode})
}

// Unsupported reports whether an error of Attach means that another method may work.
func Unsupported(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, ebpf.ErrNotSupported) ||
		errors.Is(err, syscall.EINVAL)
}

// Refused reports whether an error of Attach by this method means that another method may work. Drivers that have no
// queues left for XDP (ice, ixgbe, bnxt) call that a lack of memory.
func (m Method) Refused(err error) bool {
	return Unsupported(err) || m == NativeXDP && errors.Is(err, syscall.ENOMEM)
}

// Explain returns an error with the reason why Attach has failed, and the remedy. Errors: ErrNoRights, ErrBusy,
// ErrUnsupported.
func Explain(err error, p Port, m Method) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("attaching to %s: %w: run as root, or with CAP_BPF and CAP_NET_ADMIN", p.Name, ErrNoRights)
	case m == TCFilter && errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("attaching to %s in TC: %w (%v): see `tc filter show dev %s ingress`, and remove or move it",
			p.Name, ErrBusy, err, p.Name)
	case errors.Is(err, syscall.EBUSY), m.Hook == lb.HookXDP && errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("attaching to %s: %w%s", p.Name, ErrBusy, holderOf(p, m))
	case m.Dispatched:
		return fmt.Errorf(
			"attaching to %s: joining libxdp's dispatcher: %w: hook: tc takes the packets that its programs "+
				"pass", p.Name, err)
	case m.Hook == lb.HookTC && (Unsupported(err) || errors.Is(err, syscall.ENOENT)):
		return fmt.Errorf(
			"attaching to %s in TC: %w (%v): it needs Linux 6.6 or newer, or the kernel modules sch_ingress "+
				"and cls_bpf; hook: xdp may work",
			p.Name, ErrUnsupported, err)
	case m.Refused(err):
		return fmt.Errorf("attaching to %s in XDP: %w (%v): hook: tc may work", p.Name, ErrUnsupported, err)
	}
	return fmt.Errorf("attaching to %s in %s: %v", p.Name, m.Name, err)
}
