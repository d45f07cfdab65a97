// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// The values of a feature, as Events have them.
const featureOn, featureOff = "on", "off"

// DisableFeature switches a feature of a link off, by the kernel's name for it, as `ethtool -K` does. It does not
// change a feature that is off already. Errors: ErrNoLink, ErrNoRights; that the link has no such feature, or that it
// stays on.
func (c *Changes) DisableFeature(name, feature, why string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	doing := fmt.Sprintf("switch %s of %s off", feature, name)
	if c.closed {
		return fmt.Errorf("%s: %w", doing, errClosed)
	}
	link, err := c.link(name)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	ch := change{Kind: kindFeature, Link: name, Index: link.Attrs().Index, Feature: feature}
	on, err := c.hasFeature(name, feature)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if !on {
		c.addEvent(Event{Subject: subject(ch), Old: featureOff, New: featureOff, Reason: "is off already"})
		return nil
	}
	err = c.apply(ch, func() (bool, error) {
		if err := c.setFeature(name, feature, false); err != nil {
			return false, err
		}
		c.addEvent(Event{Subject: subject(ch), Old: featureOn, New: featureOff, Reason: why})
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// RestoreFeature switches a feature of a link on again if DisableFeature has switched it off.
func (c *Changes) RestoreFeature(name, feature, why string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("switch %s of %s on again: %w", feature, name, errClosed)
	}
	undoing := c.newUndoer(why)
	var failed []error
	onLink := on(c.netlink, name)
	for _, ch := range slices.Clone(c.journal.changes) {
		if ch.Kind != kindFeature || !onLink(ch) || ch.Feature != feature {
			continue
		}
		err := undoing.undoFeature(ch)
		if err == nil {
			err = c.journal.forget(ch)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// undoFeature switches a feature on again, unless it is on already, or its link was deleted.
func (u *undoer) undoFeature(ch change) error {
	link, err := u.netlink.LinkByIndex(ch.Index)
	if netdump.IsLinkMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the link %s: %w", ch.Link, wrapRights(err))
	}
	name := link.Attrs().Name
	on, err := u.hasFeature(name, ch.Feature)
	if err != nil || on {
		return err
	}
	if err := u.setFeature(name, ch.Feature, true); err != nil {
		return fmt.Errorf("switch %s of %s on again: %w", ch.Feature, name, err)
	}
	u.addEvent(Event{Subject: subject(ch), Old: featureOff, New: featureOn, Reason: u.reason})
	return nil
}

// ethtool calls do in the namespace with a socket for ethtool requests.
func (c *Changes) ethtool(do func(*ethtool.Ethtool) error) error {
	return c.ns.Do(func() error {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("open a socket for ethtool requests: %w", err)
		}
		defer tool.Close()
		return do(tool)
	})
}

func (c *Changes) hasFeature(name, feature string) (on bool, err error) {
	err = c.ethtool(func(tool *ethtool.Ethtool) error {
		all, err := tool.Features(name)
		if err != nil {
			return wrapRights(err)
		}
		var found bool
		if on, found = all[feature]; !found {
			return errors.New("this kernel knows no such feature")
		}
		return nil
	})
	return on, err
}

// setFeature sets a feature and reads it back, since a driver may ignore the request silently.
func (c *Changes) setFeature(name, feature string, on bool) error {
	err := c.ethtool(func(tool *ethtool.Ethtool) error { return tool.Change(name, map[string]bool{feature: on}) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("its driver cannot (%w)", err)
	}
	if err != nil {
		return wrapRights(err)
	}
	switch now, err := c.hasFeature(name, feature); {
	case err != nil:
		return err
	case now != on:
		return errors.New("its driver leaves it as it is")
	}
	return nil
}
