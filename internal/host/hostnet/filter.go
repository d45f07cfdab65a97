// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
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
	err = c.apply(ch, func() (bool, error) {
		filter := &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: ch.Index, Parent: filterParent(ch), Protocol: unix.ETH_P_ALL},
			Fd:          f.FD, Name: f.Name, DirectAction: true,
		}
		if err := c.netlink.FilterAdd(filter); err != nil {
			return false, wrapRights(err)
		}
		c.addEvent(Event{Subject: subject(ch), Old: absent, New: present})
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// HasFilter reports whether a filter of that name is at one side of the link with that index, whoever put it there.
func (c *Changes) HasFilter(index int, name string, egress bool) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, fmt.Errorf("look for the filter %s: %w", name, errClosed)
	}
	filters, err := c.filters(change{Kind: kindFilter, Index: index, Egress: egress})
	return slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		ours, ok := f.(*netlink.BpfFilter)
		return ok && ours.Name == name
	}), err
}

// RemoveFilters removes the filters that AddFilter has attached to the link with that index, which may be gone, and
// strikes them out.
func (c *Changes) RemoveFilters(index int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("take filters away: %w", errClosed)
	}
	undoing := c.newUndoer("")
	var failed []error
	var gone []change
	for _, ch := range slices.Backward(c.journal.changes) {
		if ch.Index != index || ch.Kind != kindFilter && ch.Kind != kindClsact {
			continue
		}
		if err := undoing.undo(ch); err != nil {
			failed = append(failed, err)
			continue
		}
		gone = append(gone, ch)
	}
	return errors.Join(append(failed, c.journal.forget(gone...))...)
}

// addClsact adds the queueing discipline if the link has none that serves.
func (c *Changes) addClsact(link netlink.Link) error {
	qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) { return c.netlink.QdiscList(link) })
	if err != nil {
		return wrapRights(err)
	}
	for _, q := range qdiscs {
		if q.Type() == clsact {
			return nil
		}
	}
	ch := change{Kind: kindClsact, Link: link.Attrs().Name, Index: link.Attrs().Index}
	return c.apply(ch, func() (bool, error) {
		if err := c.netlink.QdiscAdd(clsactOf(ch)); err != nil {
			return false, wrapRights(err)
		}
		c.addEvent(Event{Subject: subject(ch), Old: absent, New: present})
		return true, nil
	})
}

// EnsureClsact gives a link the queueing discipline if it has none, and calls attach; ours says that this process
// brought it. Attach then attaches a filter by which a later owner knows. Until attach has returned
// the journal says it: a process that is killed before leaves none. Errors: ErrNoLink, ErrNoRights;
// attach's.
func (c *Changes) EnsureClsact(name string, attach func(ours bool) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	doing := fmt.Sprintf("add the queueing discipline %s to %s", clsact, name)
	if c.closed {
		return fmt.Errorf("%s: %w", doing, errClosed)
	}
	link, err := c.link(name)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	ch := change{Kind: kindClsact, Link: name, Index: link.Attrs().Index}
	err = c.apply(ch, func() (bool, error) {
		err := c.netlink.QdiscAdd(clsactOf(ch))
		if errors.Is(err, unix.EEXIST) { // one, or its forerunner ingress, is there
			return false, nil
		}
		return err == nil, wrapRights(err)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	// Of a process that was killed here, too.
	ours := slices.ContainsFunc(c.journal.changes, func(it change) bool {
		return it.Kind == kindClsact && it.Index == ch.Index
	})
	err = attach(ours)
	if !ours {
		return err
	}
	if err != nil {
		if undone := c.undoClsact(ch, "nothing could be attached to it"); undone != nil {
			return errors.Join(err, undone) // it stays in the journal, for the next owner
		}
	}
	return errors.Join(err, c.forgetClsact(ch.Index))
}

// forgetClsact strikes out that a link's queueing discipline is ours.
func (c *Changes) forgetClsact(index int) error {
	var gone []change
	for _, ch := range c.journal.changes {
		if ch.Kind == kindClsact && ch.Index == index {
			gone = append(gone, ch)
		}
	}
	return c.journal.forget(gone...)
}

func clsactOf(ch change) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ch.Index, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT},
		QdiscType: clsact,
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
		if err := c.netlink.FilterDel(ours); err != nil && !isGone(err) {
			return fmt.Errorf("take filter %s off %s: %w", ch.Filter, ch.Link, wrapRights(err))
		}
		c.addEvent(Event{Subject: subject(ch), Old: present, New: absent, Reason: reason})
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
			c.addEvent(Event{Subject: subject(ch), Old: present, New: present, Reason: "it has filters: it stays"})
			return nil
		}
	}
	if there, err := c.hasClsact(ch.Index); err != nil || !there {
		return err
	}
	if err := c.netlink.QdiscDel(clsactOf(ch)); err != nil {
		if isGone(err) {
			return nil
		}
		return fmt.Errorf("take %s off %s: %w", clsact, ch.Link, wrapRights(err))
	}
	c.addEvent(Event{Subject: subject(ch), Old: present, New: absent, Reason: reason})
	return nil
}

func (c *Changes) hasClsact(index int) (bool, error) {
	link, err := c.netlink.LinkByIndex(index)
	if _, missing := err.(netlink.LinkNotFoundError); missing {
		return false, nil
	}
	if err != nil {
		return false, wrapRights(err)
	}
	qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) { return c.netlink.QdiscList(link) })
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
	filters, err := netdump.Consistent(func() ([]netlink.Filter, error) {
		return c.netlink.FilterList(link, filterParent(ch))
	})
	if err != nil && isGone(err) {
		return nil, nil
	}
	return filters, wrapRights(err)
}

// isGone reports whether an error means that another program has removed it, alone
// or with its link. The kernel says EINVAL where the queueing discipline is
// missing.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}
