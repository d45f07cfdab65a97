// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddressOptions says how an address is put on a link.
type AddressOptions struct {
	// ScopeHost keeps an IPv4 address from being chosen as the source of
	// anything that leaves the host, of ARP requests too. IPv6 has no such
	// choice (the scope follows from the address): use Deprecated there.
	ScopeHost bool
	// Deprecated gives an IPv6 address a preferred lifetime of 0: it is valid
	// for ever, but not chosen as a source while there is another (RFC 4862
	// section 5.5.4, RFC 6724 section 5, rule 3).
	Deprecated bool
	// NoDAD leaves out IPv6 duplicate address detection, which would hold the
	// address back for a second, and for good if a peer has it too.
	NoDAD bool
}

// AddAddress puts addr on link as a /32 or /128. If the link has the address
// already and not from here, it is somebody else's: it is kept, an Event says
// so, and it will not be removed. Errors: ErrNoLink, ErrNoRights.
func (c *Changes) AddAddress(link string, addr netip.Addr, opt AddressOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr = addr.Unmap()
	doing := fmt.Sprintf("put address %s on %s", addr, link)
	if c.closed {
		return fmt.Errorf("%s: %w", doing, errClosed)
	}
	if !addr.IsValid() || addr.Zone() != "" {
		return fmt.Errorf("%s: not an address without a zone", doing)
	}
	on, err := c.link(link)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	index := on.Attrs().Index
	there, err := c.has(index, addr)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	ch := change{Kind: kindAddress, Link: link, Index: index, Address: addr}
	switch ours := c.ours(index, addr); {
	case there && !ours:
		c.noteKept(link, addr)
	case !there && ours:
		// Somebody has removed it since; it is in the journal already.
		_, err = c.addAddress(ch, opt)
	case !there:
		err = c.make(ch, func() (bool, error) { return c.addAddress(ch, opt) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// addAddress reports whether it was this call that put the address there.
func (c *Changes) addAddress(ch change, opt AddressOptions) (bool, error) {
	addr := kernelAddress(ch)
	if ch.Address.Is4() && opt.ScopeHost {
		addr.Scope = unix.RT_SCOPE_HOST
	}
	if ch.Address.Is6() && opt.NoDAD {
		addr.Flags = unix.IFA_F_NODAD
	}
	if ch.Address.Is6() && opt.Deprecated {
		addr.ValidLft, addr.PreferedLft = math.MaxUint32, 0 // for ever, and never
	}
	err := c.netlink.AddrAdd(nil, addr)
	switch {
	case errors.Is(err, unix.EEXIST):
		// Somebody was faster than we between looking and adding.
		c.noteKept(ch.Link, ch.Address)
		return false, nil
	case errors.Is(err, unix.EACCES) && ch.Address.Is6() && c.ipv6Off(ch.Link):
		return false, fmt.Errorf("IPv6 is switched off there: set net.ipv6.conf.%s.disable_ipv6 to 0", ch.Link)
	case err != nil:
		return false, rights(err)
	}
	c.note(Event{Subject: subject(ch), Old: absent, New: present})
	return true, nil
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
	}
	return fmt.Sprintf("%s on %s", netip.PrefixFrom(ch.Address, ch.Address.BitLen()), ch.Link)
}

func (c *Changes) noteKept(link string, addr netip.Addr) {
	c.note(Event{Subject: subject(change{Link: link, Address: addr}), Old: present, New: present,
		Reason: "somebody else put it there: it stays, also afterwards"})
}

// RemoveAddress takes addr off link again if AddAddress put it there; anything
// else it leaves alone.
func (c *Changes) RemoveAddress(link string, addr netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr = addr.Unmap()
	if c.closed {
		return fmt.Errorf("take address %s off %s: %w", addr, link, errClosed)
	}
	// More than one, if the link was removed and made anew in between.
	for _, ch := range slices.Clone(c.journal.changes) {
		if ch.Kind != kindAddress || ch.Link != link || ch.Address != addr {
			continue
		}
		if err := c.undoAddress(ch, ""); err != nil {
			return err
		}
		if err := c.journal.forget(ch); err != nil {
			return err
		}
	}
	return nil
}

// undoAddress takes the address away if it is still there.
func (c *Changes) undoAddress(ch change, reason string) error {
	on, err := c.has(ch.Index, ch.Address)
	if err == nil && on {
		err = c.netlink.AddrDel(nil, kernelAddress(ch))
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
			// Removed by somebody else in between, alone or with its link.
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("take address %s off %s: %w", ch.Address, ch.Link, rights(err))
	}
	if on {
		c.note(Event{Subject: subject(ch), Old: present, New: absent, Reason: reason})
	}
	return nil
}

// ours reports whether it was AddAddress that put an address there.
func (c *Changes) ours(index int, addr netip.Addr) bool {
	return slices.ContainsFunc(c.journal.changes, func(ch change) bool {
		return ch.Kind == kindAddress && ch.Index == index && ch.Address == addr
	})
}

// Links returns the names of the interfaces that have the address, with
// whatever prefix length.
func (c *Changes) Links(addr netip.Addr) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doing := fmt.Sprintf("look for address %s", addr)
	if c.closed {
		return nil, fmt.Errorf("%s: %w", doing, errClosed)
	}
	holders, err := c.holders(addr.Unmap())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var names []string
	for _, index := range holders {
		link, err := c.netlink.LinkByIndex(index)
		if _, gone := err.(netlink.LinkNotFoundError); gone {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doing, rights(err))
		}
		names = append(names, link.Attrs().Name)
	}
	return names, nil
}

// has reports whether a link has the address.
func (c *Changes) has(index int, addr netip.Addr) (bool, error) {
	holders, err := c.holders(addr)
	return slices.Contains(holders, index), err
}

// holders returns the indices of the links that have the address.
func (c *Changes) holders(addr netip.Addr) ([]int, error) {
	// An interrupted dump may lack entries: the kernel asks to try again.
	var list []netlink.Addr
	var err error
	for range 10 {
		if list, err = c.netlink.AddrList(nil, family(addr)); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", rights(err))
	}
	var indices []int
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == addr && !slices.Contains(indices, a.LinkIndex) {
			indices = append(indices, a.LinkIndex)
		}
	}
	return indices, nil
}

func (c *Changes) link(name string) (netlink.Link, error) {
	link, err := c.netlink.LinkByName(name)
	if _, missing := err.(netlink.LinkNotFoundError); missing {
		return nil, fmt.Errorf("%w: %s", ErrNoLink, name)
	}
	if err != nil {
		return nil, rights(err)
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

func family(addr netip.Addr) int {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
