// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// A link may be renamed while its changes are in force. Its index identifies it, except where it was deleted and
// recreated: then its name does.

// on returns whether a change is of the link of a name.
func (c *Changes) on(name string) func(change) bool {
	index := c.indexOf(name)
	return func(ch change) bool { return ch.Link == name || index != 0 && ch.Index == index }
}

// indexOf returns the index of the link of a name; 0 if there is none, or the kernel does not say.
func (c *Changes) indexOf(name string) int {
	link, err := c.netlink.LinkByName(name)
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
func (c *Changes) presentName(ch change) string {
	family, name, key, ok := linkOf(ch.Sysctl)
	if !ok || ch.Index == 0 {
		return ch.Sysctl
	}
	link, err := c.netlink.LinkByIndex(ch.Index)
	if err != nil || link.Attrs().Name == name {
		return ch.Sysctl
	}
	return conf(family, link.Attrs().Name, key)
}

// followRenames gives the sysctls of renamed links their present names, in the journal and in forwarding: settings of a
// link's previous name would otherwise be restored, as if the host no longer forwarded there.
func (c *Changes) followRenames() error {
	changes, renamed := slices.Clone(c.journal.changes), map[string]string{}
	for i, ch := range changes {
		if ch.Kind != kindSysctl {
			continue
		}
		if now := c.presentName(ch); now != ch.Sysctl {
			changes[i].Sysctl, renamed[ch.Sysctl] = now, now
		}
	}
	if len(renamed) == 0 {
		return nil
	}
	for _, names := range [][]string{c.forwarding4.sysctls, c.forwarding6.sysctls} {
		for i, name := range names {
			if now, ok := renamed[name]; ok {
				names[i] = now
			}
		}
	}
	return c.journal.replace(changes)
}
