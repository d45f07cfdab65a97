// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// reverseFilter returns the effective rp_filter level of an interface.
func reverseFilter(name string) (int, error) {
	all, err1 := readNumber("net.ipv4.conf.all.rp_filter")
	own, err2 := readNumber("net/ipv4/conf/" + name + "/rp_filter")
	return max(all, own), errors.Join(err1, err2)
}

// checkCapabilities checks the rights that every mode needs. The program's own are checked by loading it.
func checkCapabilities() []Finding {
	var header unix.CapUserHeader
	var data [2]unix.CapUserData
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&header, &data[0]); err != nil {
		return []Finding{{"rights", Missing, fmt.Sprintf("ask for this process's rights: %v", err)}}
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return []Finding{{"rights", Missing, "to change the network's settings: run as root, or with CAP_NET_ADMIN"}}
	}
	return []Finding{{"rights", Good, "may change the network's settings"}}
}

// kernel loads the program, and tries to attach it.
func (h *host) kernel(mode lb.Mode) []Finding {
	var found []Finding
	if h.choice != nil {
		found = append(found, Finding{"interface", Missing, strings.TrimPrefix(h.choice.Error(), "start the agent: ")})
	}
	for _, l := range h.interfaces {
		f := Finding{"interface", Good, "packets may arrive on " + l.Attrs().Name}
		if !isUp(l) {
			f = Finding{"interface", Missing, fmt.Sprintf("%s is down: ip link set %s up", l.Attrs().Name,
				l.Attrs().Name)}
		} else if x := l.Attrs().Xdp; x != nil && x.Attached {
			f = Finding{"interface", Note, fmt.Sprintf("%s: an XDP program (id %d) sees the packets first",
				l.Attrs().Name, x.ProgId)}
		}
		found = append(found, f)
	}
	p, err := load(Options{Modes: []lb.Mode{mode}, Marks: h.opt.Marks})
	if err != nil {
		return append(found, Finding{"program", Missing, err.Error()})
	}
	defer p.close()
	return append(found, Finding{"program", Good, "this kernel takes the eBPF program"},
		attachable(p.ingress, h.opt.Hook))
}

// attachable tries the hook in a way that changes nothing.
func attachable(p *ebpf.Program, hook Hook) Finding {
	if hook != HookClsact {
		if hasTCX(loopbackIndex) {
			return Finding{"hook", Good, "TCX"}
		}
		if hook == HookTCX {
			return Finding{"hook", Missing, "this kernel has no TCX (Linux 6.6): --attach clsact"}
		}
	}
	ns, err := namespace.New()
	if err != nil {
		return Finding{"hook", Note, fmt.Sprintf("clsact; whether the kernel has it was not tried: %v", err)}
	}
	defer ns.Close()
	if err := ns.Do(func() error { return tryClsact(p) }); err != nil {
		return Finding{"hook", Missing, fmt.Sprintf("clsact with eBPF filters (modules sch_ingress and cls_bpf): %v",
			err)}
	}
	return Finding{"hook", Good, "clsact"}
}

// loopbackIndex is the index of lo, every namespace's first interface.
const loopbackIndex = 1

// runsOn reports whether a program of an agent is attached to an interface, by TCX or as a filter.
func runsOn(l netlink.Link) (bool, error) {
	for _, egress := range []bool{false, true} {
		if there, err := hasProgram(l.Attrs().Index, egress); there {
			return true, err
		}
		parent := uint32(netlink.HANDLE_MIN_INGRESS)
		if egress {
			parent = netlink.HANDLE_MIN_EGRESS
		}
		filters, err := netdump.Consistent(func() ([]netlink.Filter, error) { return netlink.FilterList(l, parent) })
		// without the queueing discipline
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return false, err
		}
		for _, f := range filters {
			if ours, ok := f.(*netlink.BpfFilter); ok && ours.Name == filterName {
				return true, nil
			}
		}
	}
	return false, nil
}

// hasProgram looks for the program in TCX.
func hasProgram(index int, egress bool) (bool, error) {
	where := ebpf.AttachTCXIngress
	if egress {
		where = ebpf.AttachTCXEgress
	}
	all, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: where})
	if err != nil {
		return false, err
	}
	for _, one := range all.Programs {
		p, err := ebpf.NewProgramFromID(one.ID)
		if err != nil {
			continue // the program no longer exists
		}
		info, err := p.Info()
		p.Close()
		// The kernel keeps 15 characters of a name.
		if err == nil && strings.HasPrefix(info.Name, filterName) {
			return true, nil
		}
	}
	return false, nil
}

// tryClsact attaches the program in a temporary namespace.
func tryClsact(p *ebpf.Program) error {
	attrs := netlink.QdiscAttrs{LinkIndex: loopbackIndex, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}
	if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: string(HookClsact)}); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: loopbackIndex, Parent: netlink.HANDLE_MIN_INGRESS,
			Protocol: unix.ETH_P_ALL},
		Fd: p.FD(), Name: filterName, DirectAction: true,
	})
}

// otherReceivers lists the other receivers of such packets on this host. The program runs before all of them, and takes
// only packets for a VIP.
func (h *host) otherReceivers(mode lb.Mode) []Finding {
	var found []Finding
	for _, l := range h.links {
		if tunnels := map[string]bool{"ipip": true, "sit": true, "ip6tnl": true}; mode == lb.IPIP && tunnels[l.Type()] {
			found = append(found,
				Finding{"tunnel", Note,
					fmt.Sprintf("the kernel's %s is here too: what is for a VIP is taken before it, the rest is left to it", l.Attrs().Name)})
		}
	}
	if mode != lb.GUE {
		return found
	}
	if fous, err := netlink.FouList(0); err == nil {
		for _, f := range fous {
			found = append(found,
				Finding{"tunnel", Note,
					fmt.Sprintf("the kernel's fou has UDP port %d too: what is for a VIP is taken before it", f.Port)})
		}
	}
	if udpListens(guePort) {
		found = append(found,
			Finding{"tunnel", Note,
				fmt.Sprintf("a program listens on UDP port %d: what is in GUE and for a VIP does not reach it",
					guePort)})
	}
	return found
}

// guePort is GUE's port as assigned by IANA.
const guePort = 6080

// udpListens reports whether a UDP socket has the port.
func udpListens(port uint64) bool {
	fs, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return false
	}
	for _, list := range []func() (procfs.NetUDP, error){fs.NetUDP, fs.NetUDP6} {
		sockets, err := list()
		if err != nil {
			continue
		}
		for _, s := range sockets {
			if s.LocalPort == port {
				return true
			}
		}
	}
	return false
}
