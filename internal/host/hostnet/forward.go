// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// setting is a sysctl and its desired value.
type setting struct{ name, value string }

// EnableForwarding makes the host a router on links, for the families that are true: it undoes settings for other
// families and links. The first of the links has the addresses to which packets are translated. On an error all is as
// before, except for links that were removed.
//
// A balancer that translates addresses forwards replies by itself, which needs forwarding: otherwise the kernel's FIB
// lookup returns no route on the interface. And it passes packets to the kernel that it cannot send itself, such as the
// reply to a client, or router, whose MAC address is not known yet.
func (c *Changes) EnableForwarding(links []string, four, six bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("make the host forward: %w", errClosed)
	}
	if err := c.followRenames(); err != nil {
		return fmt.Errorf("make the host forward: %w", err)
	}
	made4, err := c.forwardFamily(&c.forwarding4, four, links, c.forward4)
	if err != nil {
		return fmt.Errorf("make the host forward IPv4: %w", err)
	}
	if _, err = c.forwardFamily(&c.forwarding6, six, links, c.forward6); err != nil {
		err = errors.Join(fmt.Errorf("make the host forward IPv6: %w", err), c.forwarding4.restore(c, made4))
	}
	return err
}

// forwardFamily sets the settings of a family, or restores them. It returns the sysctls that it has set.
func (c *Changes) forwardFamily(done *forwarding, enable bool, links []string,
	settings func([]string) ([]setting, error)) (added []string, err error) {
	switch {
	case !enable:
		done.links = nil
		return nil, c.restoreSysctls(&done.sysctls)
	case len(done.sysctls) > 0 && !done.adopted && slices.Equal(done.links, links):
		return nil, nil
	}
	list, err := settings(links)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if slices.Contains(done.sysctls, s.name) && !done.adopted {
			continue // of a link that stays
		}
		if err := c.setSysctl(s.name, s.value); err != nil {
			return nil, errors.Join(err, c.restoreSysctls(&added))
		}
		if !slices.Contains(done.sysctls, s.name) {
			added = append(added, s.name)
		}
	}
	done.sysctls, done.links, done.adopted = append(done.sysctls, added...), slices.Clone(links), false
	return added, c.restoreLinks(done)
}

// restore undoes sysctls that forwardFamily has set.
func (f *forwarding) restore(c *Changes, added []string) error {
	f.sysctls = slices.DeleteFunc(f.sysctls, func(name string) bool { return slices.Contains(added, name) })
	err := c.restoreSysctls(&added)
	f.sysctls = append(f.sysctls, added...)
	f.adopted = true // the settings are incomplete
	return err
}

// linkSettings are the names of the settings that forwarding needs on a link, without those that keep the routes of
// other links (keepRouterSettings).
var linkSettings = []string{"send_redirects", "accept_local", "rp_filter", "forwarding", "force_forwarding"}

// restoreLinks restores the settings of links on which the host no longer forwards, and on the first link those that
// only the others need.
func (c *Changes) restoreLinks(done *forwarding) error {
	keep := []string{conf4("all", "send_redirects"), conf6("all", "forwarding")}
	for i, link := range done.links {
		for _, name := range linkSettings {
			if i > 0 || name != "rp_filter" {
				keep = append(keep, conf4(link, name), conf6(link, name))
			}
		}
	}
	leave := slices.DeleteFunc(slices.Clone(done.sysctls), func(name string) bool {
		return slices.Contains(keep, name) || !slices.Contains(linkSettings, name[strings.LastIndexByte(name, '.')+1:])
	})
	done.sysctls = slices.DeleteFunc(done.sysctls, func(name string) bool { return slices.Contains(leave, name) })
	err := c.restoreSysctls(&leave)
	done.sysctls = append(done.sysctls, leave...)
	return err
}

// restoreSysctls restores sysctls, the last one first. Those that it could not restore stay in the list, and in the
// journal.
func (c *Changes) restoreSysctls(names *[]string) error {
	var failed []error
	var remain []string
	for _, name := range slices.Backward(*names) {
		if err := c.restoreSysctl(name); err != nil {
			failed = append(failed, err)
			remain = append(remain, name)
		}
	}
	slices.Reverse(remain)
	*names = remain
	return errors.Join(failed...)
}

// forward4 lists the settings for forwarding IPv4.
func (c *Changes) forward4(links []string) ([]setting, error) {
	var list []setting
	for i, link := range links {
		// A reply leaves by its ingress interface if clients and backends share it. The kernel would then tell the
		// sender, by an ICMP redirect, to send to the client directly, past the translation.
		list = append(list, setting{conf4(link, "send_redirects"), "0"})
		// A translated reply that is passed to the kernel has the VIP as its source: an address of this host, which the
		// kernel drops as martian.
		list = append(list, setting{conf4(link, "accept_local"), "1"})
		strict, err := c.isStrict(link)
		if err != nil {
			return nil, err
		}
		if strict && i > 0 {
			// For the same reason: the VIP is on the first interface, and strict filtering drops packets from it on
			// another. Loose filtering (RFC 3704 section 2.4) does not.
			list = append(list, setting{conf4(link, "rp_filter"), "2"})
		}
		// Not net.ipv4.ip_forward, which would enable forwarding on all other interfaces, too.
		list = append(list, setting{conf4(link, "forwarding"), "1"})
	}
	// Redirects are sent if either `all` or the interface allows it. Other interfaces with 1 keep sending them.
	all := conf4("all", "send_redirects")
	if value, err := c.read(all); err != nil {
		return nil, err
	} else if value != "0" {
		list = append([]setting{{all, "0"}}, list...)
	}
	return list, nil
}

// isStrict reports whether the kernel drops packets whose source is not routed back by their ingress link: the greater
// of the two values applies.
func (c *Changes) isStrict(link string) (bool, error) {
	all, err := c.read(conf4("all", "rp_filter"))
	if err != nil {
		return false, err
	}
	own, err := c.read(conf4(link, "rp_filter"))
	return max(all, own) == "1", err
}

// forward6 lists the settings for forwarding IPv6.
func (c *Changes) forward6(links []string) ([]setting, error) {
	single := true // forwarding can be enabled per interface
	for _, link := range links {
		_, err := c.read(conf6(link, "force_forwarding"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		single = single && err == nil
	}
	list, err := c.keepRouterSettings(single)
	if err != nil {
		return nil, err
	}
	return append(list, forwardSettings6(links, single)...), nil
}

// forwardSettings6 lists the settings that make links forward; before Linux 6.17 all interfaces of the host, because
// there IPv6 is forwarded on all interfaces or on none, and `all` sets the value of each.
func forwardSettings6(links []string, single bool) []setting {
	var list []setting
	if !single {
		list = append(list, setting{conf6("all", "forwarding"), "1"})
	}
	for _, link := range links {
		if single {
			list = append(list, setting{conf6(link, "force_forwarding"), "1"})
		}
		// The data plane's FIB lookups check this setting.
		list = append(list, setting{conf6(link, "forwarding"), "1"})
	}
	return list
}

// keepRouterSettings lists the settings that keep the default routes from router advertisements. A host that begins to
// forward, on any interface, drops those of all interfaces, and accepts no new ones on interfaces that forward, unless
// accept_ra is 2 there.
func (c *Changes) keepRouterSettings(single bool) ([]setting, error) {
	links, err := c.confs6()
	if err != nil {
		return nil, err
	}
	var list []setting
	for _, link := range links {
		if link == "all" || link == "lo" || link == "default" && single {
			continue // without effect; without routers; for interfaces to come, which will not forward
		}
		accepts, err := c.read(conf6(link, "accept_ra"))
		if err != nil {
			return nil, err
		}
		forwards, err := c.read(conf6(link, "forwarding"))
		if err != nil {
			return nil, err
		}
		if accepts == "1" && forwards == "0" {
			list = append(list, setting{conf6(link, "accept_ra"), "2"})
		}
	}
	return list, nil
}

// confs6 returns the names that have their own IPv6 settings: the interfaces, "all" and "default".
func (c *Changes) confs6() (names []string, err error) {
	err = c.ns.Do(func() error {
		entries, err := os.ReadDir("/proc/sys/net/ipv6/conf")
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("this kernel has no IPv6, or it is switched off")
	}
	return names, err
}

// read returns a sysctl's value; the caller holds the lock.
func (c *Changes) read(name string) (value string, err error) {
	err = c.ns.Do(func() error {
		value, err = readSysctl(name)
		return err
	})
	return value, err
}

// conf4 and conf6 name a sysctl of a link, whose own dots are written as slashes.
func conf4(link, name string) string { return conf("ipv4", link, name) }
func conf6(link, name string) string { return conf("ipv6", link, name) }

// followRenames gives the sysctls of renamed links their present names, in the journal and in forwarding: settings of a
// link's previous name would otherwise be restored, as if the host no longer forwarded there.
func (c *Changes) followRenames() error {
	changes, renamed := slices.Clone(c.journal.changes), map[string]string{}
	for i, ch := range changes {
		if ch.Kind != kindSysctl {
			continue
		}
		if now := presentName(c.netlink, ch); now != ch.Sysctl {
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
