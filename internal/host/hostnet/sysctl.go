// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// Sysctl returns the present value of a sysctl under net, such as
// "net.ipv4.conf.all.arp_ignore"; several numbers are separated by one space.
func (c *Changes) Sysctl(name string) (value string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return "", fmt.Errorf("read %s: %w", name, errClosed)
	}
	err = c.ns.Do(func() error {
		value, err = readSysctl(name)
		return err
	})
	return value, err
}

// SetSysctl sets a sysctl under net. If it has that value already, nothing is changed, and nothing will be undone. If
// another program has changed it since this process set that value, Close restores the other program's value. Errors:
// ErrNoRights; fs.ErrNotExist if this kernel has no such sysctl; that the kernel did not keep the value.
func (c *Changes) SetSysctl(name, value string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("set %s: %w", name, errClosed)
	}
	return c.setSysctl(name, value)
}

func (c *Changes) setSysctl(name, value string) error {
	value = sysctl.OneLine(value)
	return c.ns.Do(func() error {
		old, err := readSysctl(name)
		if err != nil {
			return err
		}
		if old == value {
			c.addEvent(Event{Subject: name, Old: old, New: old, Reason: "has that value already"})
			return nil
		}
		ch := change{Kind: kindSysctl, Sysctl: name, Old: old, New: value}
		if _, link, _, ok := linkOf(name); ok {
			ch.Index = indexOf(c.netlink, link)
		}
		write := func() (bool, error) {
			if err := writeChecked(name, old, value); err != nil {
				return false, err
			}
			c.addEvent(Event{Subject: name, Old: old, New: value})
			return true, nil
		}
		if reset, err := c.isReset(ch); err != nil || reset {
			if err == nil {
				_, err = write()
			}
			return err
		}
		return c.apply(ch, write)
	})
}

// isReset reports whether our last change of a sysctl set the same value, which another program has changed since. Then
// the present value replaces the one to restore in the existing journal entry, so that the journal does not grow where
// two programs disagree.
func (c *Changes) isReset(ch change) (bool, error) {
	changes := slices.Clone(c.journal.changes)
	for i, old := range slices.Backward(changes) {
		if old.Kind != kindSysctl || old.Sysctl != ch.Sysctl {
			continue
		}
		if old.New != ch.New {
			return false, nil
		}
		if changes[i] = ch; old == ch {
			return true, nil
		}
		return true, c.journal.replace(changes)
	}
	return false, nil
}

// restoreSysctl undoes our changes of a sysctl, the last one first, and removes them from the journal.
func (c *Changes) restoreSysctl(name string) error {
	foreign := map[string]bool{}
	for _, ch := range slices.Backward(slices.Clone(c.journal.changes)) {
		if ch.Kind != kindSysctl || ch.Sysctl != name {
			continue
		}
		if err := c.undoSysctl(ch, "", foreign); err != nil {
			return err
		}
		if err := c.journal.forget(ch); err != nil {
			return err
		}
	}
	return nil
}

// undoSysctl restores the old value if the new one is still set.
func (c *Changes) undoSysctl(ch change, reason string, foreign map[string]bool) error {
	name := presentName(c.netlink, ch)
	if foreign[name] {
		return nil
	}
	return c.ns.Do(func() error {
		now, err := readSysctl(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// Its interface was deleted.
			return nil
		case err != nil:
			return err
		case now == ch.Old:
			return nil
		case now != ch.New:
			foreign[name] = true
			c.addEvent(Event{Subject: name, Old: now, New: now,
				Reason: fmt.Sprintf("changed since jeoul set it from %s to %s", ch.Old, ch.New)})
			return nil
		}
		if err := writeSysctl(name, ch.Old); err != nil {
			return err
		}
		c.addEvent(Event{Subject: name, Old: now, New: ch.Old, Reason: reason})
		return nil
	})
}

// writeChecked writes value and reads it back, since some sysctls accept a value and keep another. Then it restores
// old.
func writeChecked(name, old, value string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return wrapRights(sysctl.Set(name, old, value))
}

func readSysctl(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	value, err := sysctl.Read(name)
	return value, wrapRights(err)
}

func writeSysctl(name, value string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return wrapRights(sysctl.Write(name, value))
}
