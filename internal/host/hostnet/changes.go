// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// Changes is a set of changes to the network settings of the namespace that the thread calling Open was in. Its methods
// work in that namespace from any thread. It is safe for concurrent use.
type Changes struct {
	mu      sync.Mutex
	ns      *namespace.Namespace
	netlink *netlink.Handle
	journal *lockedJournal
	events  []Event
	closed  bool
	// unreported are files whose faults only Events report. reported are the faults in earlier Events.
	unreported *durable.Files
	reported   map[string]bool
	// forwarding4 and forwarding6 are the settings that EnableForwarding has made.
	forwarding4, forwarding6 forwarding
}

// undoer has the state of undoing changes.
type undoer struct {
	*Changes
	reason string // for the Events
	// changedByOthers has the sysctls that another program has changed: an earlier value of this process must not
	// replace the other program's.
	changedByOthers map[string]bool
	// present returns the host's addresses at its first call: there may be thousands, and a dump lists all.
	present func() (map[place]bool, error)
}

// apply writes ch into the journal, calls do, and removes ch from the journal again if do fails, or reports that no
// change was needed.
func (c *Changes) apply(ch change, do func() (bool, error)) error {
	if err := c.journal.append(ch); err != nil {
		return err
	}
	changed, err := do()
	if changed && err == nil {
		return nil
	}
	return errors.Join(err, c.journal.forget(ch))
}

// Event is a change of the host's network settings, or one that was deliberately not made, for a log.
type Event struct {
	Subject string // such as net.ipv4.conf.all.arp_ignore, or "192.0.2.1/32 on lo"
	Old     string // the value before
	New     string // the value after; equal to Old if nothing was done
	Reason  string // why, where it is not plain
}

// String returns "subject: old → new (reason)", or "subject: old, unchanged (reason)".
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Subject)
	switch {
	case e.Old != e.New:
		fmt.Fprintf(&b, ": %s → %s", e.Old, e.New)
	case e.Old != "":
		fmt.Fprintf(&b, ": %s, unchanged", e.Old)
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	return b.String()
}

func (c *Changes) addEvent(e Event) { c.events = append(c.events, e) }

// Events returns the events since the last call, oldest first, and forgets them. It may be called after Close.
func (c *Changes) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fault := range c.unreported.Faults() {
		if !c.reported[fault.Path] {
			c.reported[fault.Path] = true
			c.addEvent(Event{Subject: fault.Path, Reason: fault.String()})
		}
	}
	events := c.events
	c.events = nil
	return events
}

func (c *Changes) newUndoer(reason string) *undoer {
	return &undoer{c, reason, map[string]bool{}, sync.OnceValues(c.places)}
}

// place is an address on a link, with any prefix length.
type place struct {
	index   int
	address netip.Addr
}

func (ch change) place() place { return place{ch.Index, ch.Address} }

// forwarding has the settings by which the host forwards one family, in order.
type forwarding struct {
	sysctls []string
	// links are the links on which the host forwards.
	links []string
	// adopted: another process has set them, perhaps incompletely.
	adopted bool
}
