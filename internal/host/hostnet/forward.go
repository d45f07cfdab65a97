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

// setting is a sysctl and the value that it shall have.
type setting struct{ name, value string }

// EnableForwarding makes the host a router on links, for each family or for none: settings for a family, or a link,
// that is no longer wanted are undone. The first of the links has the addresses that packets are translated to. On an
// error all is as it was before, but for links that were left.
//
// A balancer that translates addresses sends replies on by itself, as long as it may: the kernel's lookup refuses to
// find a route for it on an interface that does not forward. And it leaves packets to the kernel that it cannot send
// itself, such as the reply to a client, or router, whose MAC address is not known yet.
func (c *Changes) EnableForwarding(links []string, four, six bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("make the host forward: %w", errClosed)
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

// forwardFamily sets the settings of a family, or takes them back. It returns those that it has set.
func (c *Changes) forwardFamily(done *forwarding, want bool, links []string,
	settings func([]string) ([]setting, error)) (made []string, err error) {
	switch {
	case !want:
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
			return nil, errors.Join(err, c.restoreSysctls(&made))
		}
		if !slices.Contains(done.sysctls, s.name) {
			made = append(made, s.name)
		}
	}
	done.sysctls, done.links, done.adopted = append(done.sysctls, made...), slices.Clone(links), false
	return made, c.restoreLinks(done)
}

// restore undoes sysctls that forwardFamily has set.
func (f *forwarding) restore(c *Changes, made []string) error {
	f.sysctls = slices.DeleteFunc(f.sysctls, func(name string) bool { return slices.Contains(made, name) })
	err := c.restoreSysctls(&made)
	f.sysctls = append(f.sysctls, made...)
	f.adopted = true // what is set is not all that is wanted
	return err
}

// linkSettings are the names of the settings that forwarding takes of a link for itself. The settings that keep the
// routes of other links (keepRouterSettings) are not among them.
var linkSettings = []string{"send_redirects", "accept_local", "rp_filter", "forwarding", "force_forwarding"}

// restoreLinks undoes the settings of links on which the host is not to forward any more, and of the first those that
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

// restoreSysctls takes sysctls back, the last one first. Those that it could not stay
// in the list, and in the journal.
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
		// A reply leaves by the interface that it came in on, wherever clients and
		// backends share one. The kernel would then advise the sender, by an ICMP
		// redirect, to go to the client directly, past the translation.
		list = append(list, setting{conf4(link, "send_redirects"), "0"})
		// A reply that was translated, and then left to the kernel, comes from
		// the VIP: an address of this host, which the kernel takes for a forgery.
		list = append(list, setting{conf4(link, "accept_local"), "1"})
		strict, err := c.isStrict(link)
		if err != nil {
			return nil, err
		}
		if strict && i > 0 {
			// For the same reason: the VIP is on the first interface, and strict filtering drops packets with its
			// address on another. Loose filtering (RFC 3704 section 2.4) does not mind which.
			list = append(list, setting{conf4(link, "rp_filter"), "2"})
		}
		// Not net.ipv4.ip_forward, which would make routers of the other
		// interfaces too.
		list = append(list, setting{conf4(link, "forwarding"), "1"})
	}
	// Redirects are sent if either allows it. The other interfaces have values
	// of their own, so this takes nothing from those that have 1.
	all := conf4("all", "send_redirects")
	if value, err := c.read(all); err != nil {
		return nil, err
	} else if value != "0" {
		list = append([]setting{{all, "0"}}, list...)
	}
	return list, nil
}

// isStrict reports whether the kernel drops packets whose source is not routed back by the link that they came in on:
// the greater of the two values counts.
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
	single := true // each interface for itself
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

// forwardSettings6 makes links forward, with the rest of the host before Linux
// 6.17: there IPv6 is forwarded on all interfaces or on none, and `all` gives
// each of them its value.
func forwardSettings6(links []string, single bool) []setting {
	var list []setting
	if !single {
		list = append(list, setting{conf6("all", "forwarding"), "1"})
	}
	for _, link := range links {
		if single {
			list = append(list, setting{conf6(link, "force_forwarding"), "1"})
		}
		// The lookups of the data plane look at this one.
		list = append(list, setting{conf6(link, "forwarding"), "1"})
	}
	return list
}

// keepRouterSettings lists the settings that keep the default routes that routers have announced. A host that begins to
// forward, on whatever interface, drops those of all, and takes no new ones on interfaces that forward, unless
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

// confs6 returns the names with settings of their own for IPv6: the interfaces, "all" and "default".
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

func conf(family, link, name string) string {
	return "net." + family + ".conf." + strings.ReplaceAll(link, ".", "/") + "." + name
}
