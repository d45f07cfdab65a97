// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// A link may be renamed while its changes are in force. Its index identifies it, except where it was deleted and
// recreated: then its name does.

// on returns whether a change is of the link of a name.
func on(n *netlink.Handle, name string) func(change) bool {
	index := indexOf(n, name)
	return func(ch change) bool { return ch.Link == name || index != 0 && ch.Index == index }
}

// indexOf returns the index of the link of a name; 0 if there is none, or the kernel does not say.
func indexOf(n *netlink.Handle, name string) int {
	link, err := n.LinkByName(name)
	if err != nil {
		return 0
	}
	return link.Attrs().Index
}

// linkOf returns the parts of the name of a sysctl of a link, such as net.ipv4.conf.eth0.forwarding; ok is false for
// those of all links, and for others.
func linkOf(name string) (family, link, key string, ok bool) {
	path, err := sysctl.Relative(name)
	parts := strings.Split(path, "/")
	if err != nil || len(parts) != 5 || parts[2] != "conf" || parts[3] == "all" || parts[3] == "default" {
		return "", "", "", false
	}
	return parts[1], parts[3], parts[4], true
}

// presentName returns the name by which the sysctl of a change is found now.
func presentName(n *netlink.Handle, ch change) string {
	family, name, key, ok := linkOf(ch.Sysctl)
	if !ok || ch.Index == 0 {
		return ch.Sysctl
	}
	link, err := n.LinkByIndex(ch.Index)
	if err != nil || link.Attrs().Name == name {
		return ch.Sysctl
	}
	return conf(family, link.Attrs().Name, key)
}

func conf(family, link, name string) string {
	return "net." + family + ".conf." + strings.ReplaceAll(link, ".", "/") + "." + name
}
