// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// checkPeer returns an error if frames of a veth do not arrive at its peer. A veth takes a frame of an XDP program only
// if its peer has a program as well; otherwise the frame is lost, and nothing counts it. Where the peer cannot be seen,
// there is no warning.
func (d *device) checkPeer() error {
	var peer netlink.Link
	err := d.port.in(func() error {
		nic, err := netlink.LinkByIndex(d.index)
		if err != nil {
			return err
		}
		a := nic.Attrs()
		if nic.Type() != "veth" || a.ParentIndex == 0 {
			return nil
		}
		if a.NetNsID < 0 {
			peer, err = netlink.LinkByIndex(a.ParentIndex)
		} else {
			peer, err = linkIn(a.NetNsID, a.ParentIndex)
		}
		return err
	})
	if err != nil || peer == nil {
		return nil
	}
	if xdp := peer.Attrs().Xdp; xdp != nil && xdp.Attached {
		return nil
	}
	return fmt.Errorf(
		"%w %s: its other end, %s, has no XDP program, without which the frames of ours vanish: `jeoul wire pass` puts one there",
		ErrPort, d.port, peer.Attrs().Name)
}

// linkIn reads a link of another network namespace, which this one refers to by a number.
func linkIn(namespace, index int) (netlink.Link, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(namespace))))
	answers, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, err
	}
	if len(answers) == 0 {
		return nil, unix.ENODEV
	}
	return netlink.LinkDeserialize(nil, answers[0])
}
