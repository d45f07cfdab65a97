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
	// Name is the filter's name, by which it is removed.
	Name string
	// FD is the program's file descriptor, needed during AddFilter only.
	FD int
	// Egress is for packets that leave; otherwise for those that arrive.
	Egress bool
}

// AddFilter attaches a program to a link by netlink, before existing filters, for kernels without TCX (before 6.6).
// Unlike a TCX link the filter outlives the process, and so is in the journal. Errors: ErrNoLink, ErrNoRights.
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

// HasFilter reports whether a link has a filter of that name at ingress or egress. Other programs' filters count.
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

// RemoveFilters removes the filters that AddFilter has attached to the link of that index, which may be deleted, and
// their journal entries.
func (c *Changes) RemoveFilters(index int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("take filters away: %w", errClosed)
	}
	undoing := c.newUndoer("")
	var failed []error
	var removed []change
	for _, ch := range slices.Backward(c.journal.changes) {
		if ch.Index != index || ch.Kind != kindFilter && ch.Kind != kindClsact {
			continue
		}
		if err := undoing.undo(ch); err != nil {
			failed = append(failed, err)
			continue
		}
		removed = append(removed, ch)
	}
	return errors.Join(append(failed, c.journal.forget(removed...))...)
}

// addClsact adds the queueing discipline if the link has none.
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

// EnsureClsact adds the queueing discipline to a link that has none, and calls attach; ours says that this process has
// added it. attach attaches a filter by whose name a later owner knows that. Until attach has returned the journal has
// the qdisc, so that it is removed after a kill. Errors: ErrNoLink, ErrNoRights, those of attach.
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
		if errors.Is(err, unix.EEXIST) { // EEXIST: clsact, or the older ingress qdisc, is there
			return false, nil
		}
		return err == nil, wrapRights(err)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	// Also the qdisc of a process that was killed at this point.
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

// forgetClsact removes a link's queueing discipline from the journal.
func (c *Changes) forgetClsact(index int) error {
	var owned []change
	for _, ch := range c.journal.changes {
		if ch.Kind == kindClsact && ch.Index == index {
			owned = append(owned, ch)
		}
	}
	return c.journal.forget(owned...)
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

// undoFilter removes the filters of that name.
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

// undoClsact removes the queueing discipline unless another program has attached a filter to it.
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
	if found, err := c.hasClsact(ch.Index); err != nil || !found {
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
	if netdump.IsLinkMissing(err) {
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

// filters lists the filters at ingress or egress of a link; none if the link was deleted.
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

// isGone reports whether an error means that another program has removed the object, alone or with its link. EINVAL
// means that the queueing discipline is missing.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}
