// SPDX-License-Identifier: Apache-2.0

// Package hostnet changes a host's network settings (addresses, sysctls and features of links) and undoes every change:
// on Close, and after a crash (kill -9, a panic) at the next Open.
//
// Each change is written into a journal, with the value that it replaces, before it is made. The journal is a file per
// name and network namespace in the state directory; an advisory lock beside it, which the kernel releases with the
// process, shows whether the owner is alive. Nothing is synced to disk: a crash of the machine that loses a part of the
// journal also resets the network settings.
//
// Settings of others are kept: an address that existed before is never removed, and a value that was changed by hand
// since is not restored.
package hostnet

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Option is an option of Open and Inherit.
type Option func(*options)

type options struct{ files *durable.Files }

func optionsOf(with []Option) (opt options) {
	for _, set := range with {
		set(&opt)
	}
	return opt
}

// Files makes files write the journal, and record its faults. Without this option, Events report faults.
func Files(files *durable.Files) Option { return func(o *options) { o.files = files } }

// Open takes the lock for name in the calling thread's network namespace. If a dead process has left changes under that
// name, Open undoes them first, and reports that in Events. It creates dir if it is missing; "" means DefaultDir. A
// full, read-only or broken file system prevents no change to the host: the process undoes the change on Close, and
// Files record the fault; only the next process may not know the change. Errors: ErrBusy, ErrNoRights, ErrCorrupt.
func Open(dir, name string, with ...Option) (*Changes, error) {
	return open(dir, name, (*Changes).recover, with)
}

// Adopt is Open for a process that takes over from the previous one, whose changes stay as if this process had made
// them. The caller undoes those that are no longer needed: see RetainAddresses and EnableForwarding.
func Adopt(dir, name string, with ...Option) (*Changes, error) {
	return open(dir, name, (*Changes).adopt, with)
}

func open(dir, name string, begin func(*Changes) error, with []Option) (*Changes, error) {
	opt := optionsOf(with)
	if dir == "" {
		dir = DefaultDir
	}
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf(
			"open the journal of network changes: %q is no name for one: use letters, digits, '.', '_' and '-'", name)
	}
	if err := makeDir(dir, opt.files); err != nil {
		return nil, err
	}
	ns, err := namespace.Current()
	if err != nil {
		return nil, err
	}
	c := &Changes{ns: ns}
	if opt.files == nil {
		c.unreported, c.reported = durable.New(durable.Options{}), map[string]bool{}
		opt.files = c.unreported
	}
	if err := c.open(dir, name, begin, opt.files); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

func makeDir(dir string, files *durable.Files) error {
	// Without the directory, each write into it is recorded as a fault.
	if err := files.FileSystem().MkdirAll(dir, 0o755); err != nil && !durable.Unwritable(err) {
		return fmt.Errorf("make the state directory: %w: %s", wrapRights(err), stateDirHint)
	}
	return nil
}

func (c *Changes) open(dir, name string, begin func(*Changes) error, files *durable.Files) error {
	id, err := identify(c.ns, name)
	if err != nil {
		return err
	}
	c.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", wrapRights(err))
	}
	c.journal, err = lockJournal(pathOf(dir, name, c.ns), id, files, c.lockAgain)
	if err != nil {
		return err
	}
	return begin(c)
}

// lockAgain takes the lock if its file could not be created before.
func (c *Changes) lockAgain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	return c.journal.lockAgain()
}

// recover undoes the changes of the journal's last owner.
func (c *Changes) recover() error {
	err := c.load()
	if err == nil {
		err = c.undoAll("left by a process that died")
	}
	if err != nil {
		return fmt.Errorf("take back the network changes of a process that died, from %s: %w", c.journal.path, err)
	}
	return c.journal.replace(nil)
}

// adopt takes over the changes of the journal's last owner.
func (c *Changes) adopt() error {
	if err := c.load(); err != nil {
		return fmt.Errorf("take over the network changes of the process before, from %s: %w", c.journal.path, err)
	}
	for _, ch := range c.journal.changes {
		switch {
		case ch.Kind != kindSysctl:
		case strings.HasPrefix(ch.Sysctl, "net.ipv4."):
			c.forwarding4.adopt(ch.Sysctl)
		case strings.HasPrefix(ch.Sysctl, "net.ipv6."):
			c.forwarding6.adopt(ch.Sysctl)
		}
	}
	// Write the journal again with this process as its owner.
	return c.journal.replace(c.journal.changes)
}

// adopt records a sysctl that another process has set.
func (f *forwarding) adopt(name string) {
	if !slices.Contains(f.sysctls, name) {
		f.sysctls = append(f.sysctls, name)
	}
	f.adopted = true
}

// load reads the journal of its last owner.
func (c *Changes) load() error {
	why, err := c.journal.load()
	if why != "" {
		c.addEvent(Event{Subject: c.journal.path, Reason: why})
	}
	return err
}

// undoAll undoes all changes, the last one first. A change that cannot be undone stays in the journal, and does not
// prevent undoing the others.
func (c *Changes) undoAll(reason string) error {
	var failed []error
	var remain []change
	undoing := c.newUndoer(reason)
	for _, ch := range slices.Backward(c.journal.changes) {
		if err := undoing.undo(ch); err != nil {
			failed = append(failed, err)
			remain = append(remain, ch)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	slices.Reverse(remain)
	return errors.Join(append(failed, c.journal.replace(remain))...)
}

// undo undoes one change.
func (u *undoer) undo(ch change) error {
	switch ch.Kind {
	case kindSysctl:
		return u.undoSysctl(ch, u.reason, u.changedByOthers)
	case kindAddress:
		return u.removeAddress(ch)
	case kindFilter:
		return u.undoFilter(ch, u.reason)
	case kindClsact:
		return u.undoClsact(ch, u.reason)
	case kindFeature:
		return u.undoFeature(ch)
	}
	return fmt.Errorf("%w: unknown kind of change %q", ErrCorrupt, ch.Kind)
}

// Close undoes all changes in reverse order, removes the journal and releases the lock. If some change could not be
// undone, the error says which, and the journal stays so that the next Open tries again. A second Close does nothing.
func (c *Changes) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	err := c.undoAll("")
	if err == nil {
		err = c.journal.remove()
	} else {
		err = fmt.Errorf("take back network changes (they stay in %s, and the next start tries again): %w",
			c.journal.path, err)
	}
	c.release()
	return err
}

// Detach releases the lock and leaves all changes as they are: the journal has them, for Adopt or the next Open.
// The Changes cannot be used afterwards.
func (c *Changes) Detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.release()
	}
}

// release releases everything that is open, including the lock.
func (c *Changes) release() {
	if c.journal != nil {
		c.journal.close()
	}
	if c.netlink != nil {
		c.netlink.Close()
	}
	c.ns.Close()
}
