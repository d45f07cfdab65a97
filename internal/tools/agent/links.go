// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/host/sysctl"
)

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

// arrivesOn reports whether the program belongs on the interface once it is up: an Ethernet interface whose packets do
// not pass another interface with the program. The program would count a packet twice if it saw it twice, and would
// decapsulate a tunnel within a tunnel twice. A port of a bridge or a bond passes its packets on to that. A VLAN or a
// macvlan gets its packets from the lower interface.
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
		// The lower interface may be in another namespace, so that the program cannot be on it.
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

// isDeleted reports whether the interface with that index is deleted for certain.
func isDeleted(index int) bool {
	_, err := netlink.LinkByIndex(index)
	return netdump.IsLinkMissing(err)
}

// hasTCX checks for TCX without attaching anything.
func hasTCX(index int) bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
	return err == nil
}

// chooseInterfaces checks the requested names. If there are none, it returns all interfaces on which packets for this
// host arrive.
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

func isUp(l netlink.Link) bool { return l.Attrs().Flags&net.FlagUp != 0 }

func readNumber(name string) (int, error) {
	value, err := sysctl.Read(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(value)
}
