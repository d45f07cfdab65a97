// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// nic is an interface whose XDP program is read and replaced. Its sockets stay in the interface's network namespace,
// whatever namespace the thread changes to.
type nic struct {
	index  int
	handle *netlink.Handle
	socket *nl.NetlinkSocket
}

func openNIC(index int) (*nic, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return &nic{index: index, handle: handle, socket: socket}, nil
}

func (n *nic) close() {
	n.handle.Close()
	n.socket.Close()
}

// attached returns the XDP program on the interface, 0 for none, and whether it is in generic XDP. Error: unix.ENODEV,
// where there is no such interface.
func (n *nic) attached() (id ebpf.ProgramID, generic bool, err error) {
	link, err := n.handle.LinkByIndex(n.index)
	if netdump.IsLinkMissing(err) {
		return 0, false, unix.ENODEV
	}
	if err != nil {
		return 0, false, fmt.Errorf("asking for the XDP program of interface %d: %w", n.index, err)
	}
	xdp := link.Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return 0, false, nil
	}
	return ebpf.ProgramID(xdp.ProgId), xdp.AttachMode == nl.XDP_ATTACHED_SKB, nil
}

// exchange replaces a program by another, either of which may be nil for none. Errors: unix.EEXIST or unix.EBUSY, where
// a third program is attached.
func (n *nic) exchange(from, to *ebpf.Program, generic bool) error {
	flags, fd := uint32(unix.XDP_FLAGS_DRV_MODE), int32(-1)
	if generic {
		flags = unix.XDP_FLAGS_SKB_MODE
	}
	if to != nil {
		fd = int32(to.FD())
	}
	xdp := nl.NewRtAttr(unix.NLA_F_NESTED|unix.IFLA_XDP, nil)
	xdp.AddRtAttr(unix.IFLA_XDP_FD, nl.Uint32Attr(uint32(fd)))
	if from == nil {
		flags |= unix.XDP_FLAGS_UPDATE_IF_NOEXIST
	} else {
		flags |= unix.XDP_FLAGS_REPLACE
		xdp.AddRtAttr(unix.IFLA_XDP_EXPECTED_FD, nl.Uint32Attr(uint32(from.FD())))
	}
	xdp.AddRtAttr(unix.IFLA_XDP_FLAGS, nl.Uint32Attr(flags))

	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(n.index)
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: n.socket}}
	request.AddData(message)
	request.AddData(xdp)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
