// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// AddressOptions are the options for adding an address to a link.
type AddressOptions struct {
	// ScopeHost prevents that the kernel selects an IPv4 address as the source of packets that leave the host, or of
	// ARP requests. IPv6 has no such setting (the scope follows from the address): use Deprecated there.
	ScopeHost bool
	// Deprecated gives an IPv6 address a preferred lifetime of 0: it is valid, but not selected as a source while there
	// is another (RFC 4862 section 5.5.4, RFC 6724 section 5, rule 3).
	Deprecated bool
	// NoDAD leaves out IPv6 duplicate address detection, which would hold the address back for a second, and
	// permanently if a peer has it too.
	NoDAD bool
	// Lifetime is the time after which the kernel removes the address unless RenewAddresses renews it, so that it does
	// not outlive its process for long; in whole seconds, 0: unlimited.
	Lifetime time.Duration
}

// AddAddress adds addr to link as a /32 or /128. An address that the link has already, and that is not in the journal,
// belongs to another program: it is kept, an Event reports that, and it will not be removed. Errors: ErrNoLink,
// ErrNoRights.
func (c *Changes) AddAddress(link string, addr netip.Addr, opt AddressOptions) error {
	return c.AddAddresses(link, []netip.Addr{addr}, opt)
}

// AddAddresses adds a list of addresses to a link as AddAddress does, all of them or none. The journal has all of them
// before the first is added, so that it is written once, no matter how many there are.
func (c *Changes) AddAddresses(link string, addrs []netip.Addr, opt AddressOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing, err := c.missingAddresses(link, addrs)
	if err != nil {
		return fmt.Errorf("%s: %w", addError(link, addrs...), err)
	}
	ours := c.ownPlaces()
	fresh := slices.DeleteFunc(slices.Clone(missing), func(ch change) bool {
		// It was removed since; it is in the journal already.
		return ours[ch.place()]
	})
	if err := c.journal.append(fresh...); err != nil {
		return fmt.Errorf("%s: %w", addError(link, addrs...), err)
	}
	var installed []change
	for _, ch := range missing {
		added, err := c.addAddress(ch, opt)
		switch {
		case added:
			installed = append(installed, ch)
		case err == nil:
			// Remove it from the journal at once: it is not ours.
			err = c.journal.forget(ch)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", addError(link, ch.Address), errors.Join(err, c.rollBack(installed, fresh)))
		}
	}
	return nil
}

// addError describes AddAddresses in its errors.
func addError(link string, addrs ...netip.Addr) string {
	if len(addrs) == 1 {
		return fmt.Sprintf("put address %s on %s", addrs[0].Unmap(), link)
	}
	return fmt.Sprintf("put %d addresses on %s", len(addrs), link)
}

// missingAddresses returns those of addrs, each once, that the link does not have, and records those of others that it
// has already.
func (c *Changes) missingAddresses(name string, addrs []netip.Addr) ([]change, error) {
	if c.closed {
		return nil, errClosed
	}
	for _, addr := range addrs {
		if !addr.IsValid() || addr.Zone() != "" {
			return nil, fmt.Errorf("%s is not an address without a zone", addr)
		}
	}
	link, err := c.link(name)
	if err != nil {
		return nil, err
	}
	existing, err := c.places()
	if err != nil {
		return nil, err
	}
	ours, seen := c.ownPlaces(), map[place]bool{}
	var missing []change
	for _, addr := range addrs {
		ch := change{Kind: kindAddress, Link: name, Index: link.Attrs().Index, Address: addr.Unmap()}
		at := ch.place()
		switch {
		case seen[at]:
		case !existing[at]:
			missing = append(missing, ch)
		case !ours[at]:
			c.recordKept(name, ch.Address)
		}
		seen[at] = true
	}
	return missing, nil
}

// rollBack removes the addresses of a batch, the last one first, and their journal entries. Addresses that cannot be
// removed stay in the journal.
func (c *Changes) rollBack(made, added []change) error {
	var failed []error
	keep := map[change]bool{}
	for _, ch := range slices.Backward(made) {
		if err := c.deleteAddress(ch, "not all could be put there"); err != nil {
			failed = append(failed, err)
			keep[ch] = true
		}
	}
	removed := slices.DeleteFunc(slices.Clone(added), func(ch change) bool { return keep[ch] })
	return errors.Join(append(failed, c.journal.forget(removed...))...)
}

// addAddress reports whether this call has added the address.
func (c *Changes) addAddress(ch change, opt AddressOptions) (bool, error) {
	err := c.netlink.AddrAdd(nil, netlinkAddress(ch, opt))
	switch {
	case errors.Is(err, unix.EEXIST):
		// Another program has added it in the meantime.
		c.recordKept(ch.Link, ch.Address)
		return false, nil
	case errors.Is(err, unix.EACCES) && ch.Address.Is6() && c.ipv6Off(ch.Link):
		return false, fmt.Errorf("IPv6 is switched off there: set net.ipv6.conf.%s.disable_ipv6 to 0", ch.Link)
	case err != nil:
		return false, wrapRights(err)
	}
	c.addEvent(Event{Subject: subject(ch), Old: absent, New: present})
	return true, nil
}

// netlinkAddress returns the netlink message's address, with its options.
func netlinkAddress(ch change, opt AddressOptions) *netlink.Addr {
	addr := kernelAddress(ch)
	if ch.Address.Is4() && opt.ScopeHost {
		addr.Scope = unix.RT_SCOPE_HOST
	}
	if ch.Address.Is6() && opt.NoDAD {
		addr.Flags = unix.IFA_F_NODAD
	}
	if opt.Lifetime > 0 {
		addr.ValidLft = int(opt.Lifetime / time.Second)
		addr.PreferedLft = addr.ValidLft
	}
	if ch.Address.Is6() && opt.Deprecated {
		addr.PreferedLft = 0 // never
		if opt.Lifetime == 0 {
			addr.ValidLft = forever
		}
	}
	return addr
}

// forever is the kernel's lifetime without an end.
const forever = math.MaxUint32

// RenewAddresses renews the lifetime of those of addrs that AddAddresses has added to link, in this process or the one
// before: opt.Lifetime from now, or unlimited if that is 0. It adds missing ones again, and continues after errors.
func (c *Changes) RenewAddresses(link string, addrs []netip.Addr, opt AddressOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("renew addresses on %s: %w", link, errClosed)
	}
	keep := map[place]bool{}
	if opt.Lifetime == 0 {
		// Most of them are unlimited already.
		list, err := c.listAddresses()
		if err != nil {
			return fmt.Errorf("renew addresses on %s: %w", link, err)
		}
		for _, a := range list {
			if at, ok := placeOf(a); ok && a.ValidLft == forever {
				keep[at] = true
			}
		}
	}
	renew := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		renew[addr.Unmap()] = true
	}
	var failed []error
	onLink := on(c.netlink, link)
	for _, ch := range c.journal.changes {
		if ch.Kind != kindAddress || !onLink(ch) || !renew[ch.Address] || keep[ch.place()] {
			continue
		}
		// ENODEV: the link was deleted, and its addresses with it.
		if err := c.netlink.AddrReplace(nil, netlinkAddress(ch, opt)); err != nil && !errors.Is(err, unix.ENODEV) {
			failed = append(failed, fmt.Errorf("renew address %s on %s: %w", ch.Address, link, wrapRights(err)))
		}
	}
	return errors.Join(failed...)
}

// InstalledAddresses returns the addresses that AddAddresses has added to link, in this process or the one before, and
// that are still there.
func (c *Changes) InstalledAddresses(link string) (held []netip.Addr, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("list our addresses on %s: %w", link, errClosed)
	}
	existing, err := c.places()
	if err != nil {
		return nil, fmt.Errorf("list our addresses on %s: %w", link, err)
	}
	onLink := on(c.netlink, link)
	for _, ch := range c.journal.changes {
		if ch.Kind == kindAddress && onLink(ch) && existing[ch.place()] {
			held = append(held, ch.Address)
		}
	}
	return held, nil
}

// The values of an address or a filter in an Event.
const (
	absent  = "absent"
	present = "present"
)

func subject(ch change) string {
	switch ch.Kind {
	case kindClsact:
		return fmt.Sprintf("%s on %s", clsact, ch.Link)
	case kindFilter:
		return fmt.Sprintf("filter %s on %s", ch.Filter, ch.Link)
	case kindFeature:
		return fmt.Sprintf("feature %s of %s", ch.Feature, ch.Link)
	}
	return fmt.Sprintf("%s on %s", netip.PrefixFrom(ch.Address, ch.Address.BitLen()), ch.Link)
}

func (c *Changes) recordKept(link string, addr netip.Addr) {
	c.addEvent(Event{Subject: subject(change{Link: link, Address: addr}), Old: present, New: present,
		Reason: "jeoul did not put it there: it stays, also afterwards"})
}

// RemoveAddress removes addr from link if AddAddress has added it.
func (c *Changes) RemoveAddress(link string, addr netip.Addr) error {
	return c.RemoveAddresses(link, []netip.Addr{addr})
}

// RemoveAddresses removes a list of addresses as RemoveAddress does, and continues after errors.
func (c *Changes) RemoveAddresses(link string, addrs []netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("take addresses off %s: %w", link, errClosed)
	}
	leave := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		leave[addr.Unmap()] = true
	}
	// The journal has an address more than once if the link was deleted and recreated.
	onLink := on(c.netlink, link)
	return c.removeAddresses(func(ch change) bool { return onLink(ch) && leave[ch.Address] })
}

// removeAddresses removes the selected ones of the added addresses.
func (c *Changes) removeAddresses(selected func(change) bool) error {
	undoing := c.newUndoer("")
	var failed []error
	var removed []change
	for _, ch := range c.journal.changes {
		if ch.Kind != kindAddress || !selected(ch) {
			continue
		}
		if err := undoing.removeAddress(ch); err != nil {
			failed = append(failed, err)
			continue
		}
		removed = append(removed, ch)
	}
	return errors.Join(append(failed, c.journal.forget(removed...))...)
}

// RetainAddresses removes the addresses that AddAddresses has added to any link, except addrs on this one, and
// continues after errors.
func (c *Changes) RetainAddresses(link string, addrs []netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("take addresses off all links but %s: %w", link, errClosed)
	}
	keep := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		keep[addr.Unmap()] = true
	}
	onLink := on(c.netlink, link)
	return c.removeAddresses(func(ch change) bool { return !onLink(ch) || !keep[ch.Address] })
}

// removeAddress removes an address if it is still there.
func (u *undoer) removeAddress(ch change) error {
	existing, err := u.present()
	if err != nil {
		return fmt.Errorf("take address %s off %s: %w", ch.Address, ch.Link, err)
	}
	if !existing[ch.place()] {
		return nil
	}
	return u.deleteAddress(ch, u.reason)
}

func (c *Changes) deleteAddress(ch change, reason string) error {
	err := c.netlink.AddrDel(nil, kernelAddress(ch))
	switch {
	case errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV):
		// Removed by another program in between, alone or with its link.
		return nil
	case err != nil:
		return fmt.Errorf("take address %s off %s: %w", ch.Address, ch.Link, wrapRights(err))
	}
	c.addEvent(Event{Subject: subject(ch), Old: present, New: absent, Reason: reason})
	return nil
}

// ownPlaces returns the addresses that AddAddresses has added, with their links.
func (c *Changes) ownPlaces() map[place]bool {
	ours := map[place]bool{}
	for _, ch := range c.journal.changes {
		if ch.Kind == kindAddress {
			ours[ch.place()] = true
		}
	}
	return ours
}

// Links returns the names of the interfaces that have the address, with any prefix length.
func (c *Changes) Links(addr netip.Addr) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doing := fmt.Sprintf("look for address %s", addr)
	if c.closed {
		return nil, fmt.Errorf("%s: %w", doing, errClosed)
	}
	existing, err := c.places()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var indices []int
	for at := range existing {
		if at.address == addr.Unmap() {
			indices = append(indices, at.index)
		}
	}
	slices.Sort(indices)
	var names []string
	for _, index := range indices {
		link, err := c.netlink.LinkByIndex(index)
		if netdump.IsLinkMissing(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doing, wrapRights(err))
		}
		names = append(names, link.Attrs().Name)
	}
	return names, nil
}

// places lists the host's addresses with their links.
func (c *Changes) places() (map[place]bool, error) {
	list, err := c.listAddresses()
	if err != nil {
		return nil, err
	}
	places := make(map[place]bool, len(list))
	for _, a := range list {
		if at, ok := placeOf(a); ok {
			places[at] = true
		}
	}
	return places, nil
}

func (c *Changes) listAddresses() ([]netlink.Addr, error) {
	list, err := netdump.Consistent(func() ([]netlink.Addr, error) { return c.netlink.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", wrapRights(err))
	}
	return list, nil
}

func placeOf(a netlink.Addr) (place, bool) {
	ip, ok := netip.AddrFromSlice(a.IP)
	return place{a.LinkIndex, ip.Unmap()}, ok
}

func (c *Changes) link(name string) (netlink.Link, error) {
	link, err := c.netlink.LinkByName(name)
	if netdump.IsLinkMissing(err) {
		return nil, fmt.Errorf("%w: %s", ErrNoLink, name)
	}
	if err != nil {
		return nil, wrapRights(err)
	}
	return link, nil
}

func (c *Changes) ipv6Off(link string) bool {
	value := ""
	err := c.ns.Do(func() (err error) {
		value, err = readSysctl("net/ipv6/conf/" + link + "/disable_ipv6")
		return err
	})
	return err == nil && value != "0"
}

func kernelAddress(ch change) *netlink.Addr {
	addr := netlink.Addr{LinkIndex: ch.Index}
	addr.IPNet = netlink.NewIPNet(ch.Address.AsSlice())
	return &addr
}
