// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// clsact is the queueing discipline that TC filters at ingress and egress are
// attached to; it queues nothing.
const clsact = "clsact"

// Filter is an eBPF program in TC.
type Filter struct {
	// Name is how the filter is known, to `tc` and when it is taken away.
	Name string
	// FD is the program's file descriptor, needed during AddFilter only.
	FD int
	// Egress is for packets that leave; otherwise for those that arrive.
	Egress bool
}

// AddFilter attaches a program to a link by netlink, before the filters that
// are there, as a kernel without TCX (before 6.6) needs it. Unlike a TCX link
// the filter outlives the process: it is journalled. Errors: ErrNoLink,
// ErrNoRights.
func (c *Changes) AddFilter(name string, f Filter) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	doing := fmt.Sprintf("attach %s to %s", f.Name, name)
	if c.closed {
		return fmt.Errorf("%s: %w", doing, errClosed)
	}
	link, err := c.link(name)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if err := c.addClsact(link); err != nil {
		return fmt.Errorf("%s: add the queueing discipline %s: %w", doing, clsact, err)
	}
	ch := change{Kind: kindFilter, Link: name, Index: link.Attrs().Index, Filter: f.Name, Egress: f.Egress}
	err = c.make(ch, func() (bool, error) {
		filter := &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: ch.Index, Parent: filterParent(ch), Protocol: unix.ETH_P_ALL},
			Fd:          f.FD, Name: f.Name, DirectAction: true,
		}
		if err := c.netlink.FilterAdd(filter); err != nil {
			return false, rights(err)
		}
		c.note(Event{Subject: subject(ch), Old: absent, New: present})
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// addClsact adds the queueing discipline if the link has none that serves.
func (c *Changes) addClsact(link netlink.Link) error {
	qdiscs, err := c.netlink.QdiscList(link)
	if err != nil {
		return rights(err)
	}
	for _, q := range qdiscs {
		if q.Type() == clsact {
			return nil
		}
	}
	ch := change{Kind: kindClsact, Link: link.Attrs().Name, Index: link.Attrs().Index}
	return c.make(ch, func() (bool, error) {
		if err := c.netlink.QdiscAdd(clsactOf(ch)); err != nil {
			return false, rights(err)
		}
		c.note(Event{Subject: subject(ch), Old: absent, New: present})
		return true, nil
	})
}

func clsactOf(ch change) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ch.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  clsact,
	}
}

func filterParent(ch change) uint32 {
	if ch.Egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// undoFilter takes away the filters of that name.
func (c *Changes) undoFilter(ch change, reason string) error {
	filters, err := c.filters(ch)
	if err != nil {
		return fmt.Errorf("take filter %s off %s: %w", ch.Filter, ch.Link, err)
	}
	for _, f := range filters {
		ours, ok := f.(*netlink.BpfFilter)
		if !ok || ours.Name != ch.Filter {
			continue
		}
		if err := c.netlink.FilterDel(ours); err != nil && !gone(err) {
			return fmt.Errorf("take filter %s off %s: %w", ch.Filter, ch.Link, rights(err))
		}
		c.note(Event{Subject: subject(ch), Old: present, New: absent, Reason: reason})
	}
	return nil
}

// undoClsact takes the queueing discipline away unless another program has
// attached something to it.
func (c *Changes) undoClsact(ch change, reason string) error {
	for _, egress := range []bool{false, true} {
		ch := ch
		ch.Egress = egress
		filters, err := c.filters(ch)
		if err != nil {
			return fmt.Errorf("take %s off %s: %w", clsact, ch.Link, err)
		}
		if len(filters) > 0 {
			c.note(Event{Subject: subject(ch), Old: present, New: present, Reason: "another program uses it: it stays"})
			return nil
		}
	}
	if there, err := c.hasClsact(ch.Index); err != nil || !there {
		return err
	}
	if err := c.netlink.QdiscDel(clsactOf(ch)); err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("take %s off %s: %w", clsact, ch.Link, rights(err))
	}
	c.note(Event{Subject: subject(ch), Old: present, New: absent, Reason: reason})
	return nil
}

func (c *Changes) hasClsact(index int) (bool, error) {
	link, err := c.netlink.LinkByIndex(index)
	if _, missing := err.(netlink.LinkNotFoundError); missing {
		return false, nil
	}
	if err != nil {
		return false, rights(err)
	}
	qdiscs, err := c.netlink.QdiscList(link)
	for _, q := range qdiscs {
		if q.Type() == clsact {
			return true, err
		}
	}
	return false, err
}

// filters lists those at one side of a link; none if the link is gone.
func (c *Changes) filters(ch change) ([]netlink.Filter, error) {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ch.Index}}
	filters, err := c.netlink.FilterList(link, filterParent(ch))
	if err != nil && gone(err) {
		return nil, nil
	}
	return filters, rights(err)
}

// gone reports whether an error means that another program has removed it, alone
// or with its link. The kernel says EINVAL where the queueing discipline is
// missing.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}
