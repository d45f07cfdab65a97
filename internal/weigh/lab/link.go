// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// bridgeName is the switch's bridge.
const bridgeName = "br0"

// congestionControl is set per route: the default of a namespace is refused.
const congestionControl = "cubic"

// bridgeAgeing is how long the switch remembers a silent host's port, in the
// kernel's hundredths of a second: an hour, longer than any trial, so that no
// frame is flooded to all ports in the middle of one.
const bridgeAgeing = uint32(3600 * 100)

// deviceQueues is the number of queues of each device, and so of cores that can
// share a host's kernel work, unless the lab has CoreQueues. With a queueing discipline
// more than one gets stuck (seen on 6.18): a veth with
// GRO but without XDP gives the sign that there is room again to its peer's first
// queue only, whichever was held back.
const deviceQueues = 1

// queueLength is the first document's txqueuelen, in frames.
const queueLength = 30000

// xdpPass is XDP_PASS (include/uapi/linux/bpf.h).
const xdpPass = 2

// buildBridge makes a bridge that has a MAC address. It runs inside the host that has it: the
// switch, or a balancer of containers.
func buildBridge(mac net.HardwareAddr) error {
	no := false
	ageing := bridgeAgeing
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	attrs.HardwareAddr = mac
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &no, AgeingTime: &ageing}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make the bridge %s: %w", bridgeName, err)
	}
	for _, name := range []string{"stp_state", "forward_delay"} {
		if err := writeSys(bridgeName, "bridge/"+name, "0"); err != nil {
			return err
		}
	}
	return up(bridgeName)
}

// connect makes the link of host h: one end in h, the other a port of the
// switch, or of the bridge that h is behind. It runs where the port is.
func connect(h *Host) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find the bridge %s: %w", bridgeName, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = h.Port
	attrs.HardwareAddr = topology.PortMAC(h.role, h.number)
	attrs.MasterIndex = bridge.Attrs().Index
	queues, back := h.lab.queues(), h.lab.backQueues(h)
	attrs.NumTxQueues, attrs.NumRxQueues = queues, back
	veth := netlink.NewVeth(attrs)
	veth.PeerName = h.Interface
	veth.PeerHardwareAddr = h.MAC
	veth.PeerNamespace = netlink.NsFd(h.netns.Fd())
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(back), uint32(queues)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s to %s: %w", h.Name, h.portOn.Name, err)
	}
	return nil
}

// setDevice sets a device's offloads and its queueing, and puts it up. It runs
// inside the device's namespace.
func (l *Lab) setDevice(name string, offloads offloads) error {
	if err := up(name); err != nil {
		return err
	}
	if err := l.setQueues(name); err != nil {
		return err
	}
	return l.apply(name, offloads)
}

// setQueueing gives a device a queueing discipline, or none.
//
// A veth queues 256 frames for its peer's NAPI instance; without a discipline it
// drops the next one (measured: two clients with 1,000 connections each lost 56
// to 895 frames in 40,000 requests, and with one none), with one the sender is held
// back (Linux 6.17 and later).
//
// With TSO frames go to the core's own queue, which holds no sender back. A discipline
// is only harmful there: the core that finds it busy leaves its frames to the other
// one, which puts a flow's frames on two cores and out of order.
func setQueueing(name string, queued bool) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetTxQLen(link, queueLength); err != nil {
		return fmt.Errorf("set the queue length of %s: %w", name, err)
	}
	discipline, handle := "noqueue", uint32(netlink.HANDLE_NONE)
	if queued {
		discipline, handle = "pfifo_fast", netlink.MakeHandle(1, 0)
	}
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: handle},
		QdiscType:  discipline,
	}
	if err := netlink.QdiscReplace(qdisc); err != nil {
		return fmt.Errorf("give %s the queueing discipline %s: %w", name, discipline, err)
	}
	return nil
}

// acceptXDP attaches a program that passes every frame. It runs inside the
// device's namespace.
func acceptXDP(name string) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "lab_pass",
		Type:         ebpf.XDP,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load the XDP program for %s: %w", name, err)
	}
	defer program.Close()
	return attachXDP(name, program.FD())
}

// attachXDP attaches a native XDP program to a device, where it stays until the
// device goes; a negative descriptor takes it off.
func attachXDP(name string, fd int) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetXdpFdWithFlags(link, fd, nl.XDP_FLAGS_DRV_MODE)
	}
	if err != nil {
		return fmt.Errorf("set the XDP program of %s: %w", name, err)
	}
	return nil
}

func writeSys(device, attribute, value string) error {
	path := filepath.Join("/sys/class/net", device, attribute)
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s of device %s to %s: %w", attribute, device, value, err)
	}
	return nil
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("put %s up: %w", name, err)
	}
	return nil
}

// address gives the host's device its addresses and sets the congestion control
// of the routes that come with them. It runs inside the host. The text returned
// says why congestion control could not be set.
func (h *Host) address() (note string, err error) { return addAddresses(h.Interface, h.IPv4, h.IPv6) }

// addAddresses is address for any device of the calling thread's namespace.
func addAddresses(device string, v4, v6 netip.Addr) (note string, err error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", device, err)
	}
	prefixes := []netip.Prefix{netip.PrefixFrom(v4, topology.Prefix4), netip.PrefixFrom(v6, topology.Prefix6)}
	for _, p := range prefixes {
		flags := 0
		if p.Addr().Is6() {
			flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p), Flags: flags}); err != nil {
			return "", fmt.Errorf("give %s the address %s: %w", device, p, err)
		}
		if err := setCongestionControl(link, p); err != nil {
			note = fmt.Sprintf("congestion control is the kernel's default, not %s: %v", congestionControl, err)
		}
	}
	return note, nil
}

// setCongestionControl replaces the connected route that the kernel made for an
// address by one that names the congestion control.
func setCongestionControl(link netlink.Link, p netip.Prefix) error {
	route := netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       ipNet(p.Masked()),
		Protocol:  unix.RTPROT_KERNEL,
		Congctl:   congestionControl,
	}
	if p.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
		route.Src = p.Addr().AsSlice()
	} else {
		// The kernel's own connected route has this metric; another would add
		// a second route beside it.
		route.Priority = 256
	}
	return netlink.RouteReplace(&route)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
