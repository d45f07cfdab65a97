// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// pace has the intervals of Watch.
type pace struct {
	// settle is the wait for further changes after the first one.
	settle time.Duration
	// apart is the minimum time between two checks: another program may revert the changes, and the agent must not
	// fight it without a pause.
	apart time.Duration
	// every is the interval of reading sysctls, because the kernel does not notify their changes.
	every time.Duration
}

var defaultPace = pace{settle: 50 * time.Millisecond, apart: time.Second, every: 2 * time.Second}

// Watch keeps the host as Start has prepared it, until ctx is done: it restores what another program removes (VIPs, the
// sysctls that suppress ARP, the eBPF programs), attaches the programs to new interfaces, and logs its changes. It
// calls report with the problems that it cannot fix, whenever they change. An empty list means that there are none.
// Call Watch once, before Close.
func (a *Agent) Watch(ctx context.Context, log *slog.Logger, report func(problems []string)) {
	linksChanged := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() { defer close(ended); a.listen(ctx, log, linksChanged) }()
	defer func() { <-ended }()
	var known []string
	looked := time.Time{}
	tick := time.NewTicker(a.pace.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-linksChanged:
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(a.pace.settle, time.Until(looked.Add(a.pace.apart)))):
			}
		}
		problems := a.reconcile(log)
		looked = time.Now()
		if slices.Equal(problems, known) {
			continue
		}
		for _, p := range problems {
			if !slices.Contains(known, p) {
				log.Warn(p)
			}
		}
		for _, p := range known {
			if !slices.Contains(problems, p) {
				log.Info("no longer: " + p)
			}
		}
		known = problems
		report(problems)
	}
}

// listen signals changes of interfaces, addresses and TC, until ctx is done. If it cannot, Watch still polls every few
// seconds.
func (a *Agent) listen(ctx context.Context, log *slog.Logger, linksChanged chan<- struct{}) {
	for ctx.Err() == nil {
		var events *nl.NetlinkSocket
		err := a.ns.Do(func() (err error) {
			events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
				unix.RTNLGRP_IPV6_IFADDR,
				unix.RTNLGRP_TC)
			return err
		})
		if err != nil {
			log.Warn(fmt.Sprintf("listen to changes of the network: %v", err))
		} else {
			stop := context.AfterFunc(ctx, events.Close)
			receive(events, linksChanged)
			if stop() {
				events.Close()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(a.pace.every):
		}
	}
}

// receive signals each message, until the socket is closed or fails.
func receive(events *nl.NetlinkSocket, linksChanged chan<- struct{}) {
	for {
		_, _, err := events.Receive()
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // check also after lost messages
			return
		}
		select {
		case linksChanged <- struct{}{}:
		default:
		}
	}
}

// reconcile compares the host with the desired state, fixes what it can, and returns the remaining problems.
func (a *Agent) reconcile(log *slog.Logger) (problems []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	note := func(err error) {
		if err != nil {
			problems = append(problems, strings.TrimPrefix(err.Error(), "start the agent: "))
		}
	}
	err := a.ns.Do(func() error {
		links, err := netdump.Links()
		if err != nil {
			return fmt.Errorf("list the interfaces: %w", err)
		}
		if lo := byName(links, loopback); lo == nil || !isUp(lo) {
			note(fmt.Errorf("interface %s is down, and accepts nothing: ip link set %s up", loopback, loopback))
		}
		for _, err := range a.keepVIPs(links) {
			note(err)
		}
		for _, e := range a.changes.Events() {
			if e.Old != e.New {
				log.Warn("something else has changed what the agent set; put back: " + e.String())
			}
		}
		if a.program != nil {
			for _, err := range a.keepPrograms(links, log) {
				note(err)
			}
			a.changes.Events() // drop the events of filters: keepPrograms has reported them
		}
		return nil
	})
	note(err)
	if a.follower != nil {
		// Without an event too: the update of the last one may have failed, and another may not come.
		note(a.follower.refresh())
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// keepVIPs restores missing VIPs, after it has suppressed ARP for them: see prepare.
func (a *Agent) keepVIPs(links []netlink.Link) (problems []error) {
	addresses, err := netdump.Consistent(func() ([]netlink.Addr, error) {
		return netlink.AddrList(nil,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		return []error{fmt.Errorf("list the addresses of this host: %w", err)}
	}
	if slices.ContainsFunc(a.opt.VIPs, netip.Addr.Is4) {
		if err := silenceARP(a.changes); err != nil {
			// The host would answer ARP for an address that is added now.
			return []error{err}
		}
	}
	for _, vip := range a.opt.VIPs {
		on := holders(vip, addresses, links)
		for _, name := range on {
			if name != loopback {
				problems = append(problems,
					fmt.Errorf("%s is on %s, which answers for it on the network: ip address del %s dev %s", vip, name,
						vip, name))
			}
		}
		if !slices.Contains(on, loopback) {
			if err := a.changes.AddAddress(loopback, vip, vipOptions); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}

// keepPrograms attaches the programs where they are missing, and detaches them where they no longer belong.
func (a *Agent) keepPrograms(links []netlink.Link, log *slog.Logger) (problems []error) {
	wanted, problems := a.wanted(links)
	for _, on := range slices.Clone(a.attached) {
		nic := byIndex(links, on.index)
		if nic != nil && nic.Attrs().Name != on.name {
			log.Info(fmt.Sprintf("interface %s has the name %s now, and goes on", on.name, nic.Attrs().Name))
			on.name = nic.Attrs().Name
		}
		works := false
		if nic != nil && wanted[on.index] != "" {
			var err error
			if works, err = on.works(a.changes); err != nil {
				problems, works = append(problems, err), true
			}
			if !works && isDeleted(on.index) {
				nic = nil // since links were listed; its programs went with it
			}
		}
		if works {
			continue
		}
		switch {
		case nic == nil:
			log.Warn(fmt.Sprintf("interface %s is gone: nothing arrives there until it comes back", on.name))
		case wanted[on.index] == "":
			log.Info(fmt.Sprintf("the eBPF program is taken off %s: its packets come by another interface that has it",
				on.name))
		default:
			log.Warn(fmt.Sprintf("something else has taken the eBPF program off %s: it is put back", on.name))
		}
		if err := a.detach(on); err != nil && nic != nil {
			problems = append(problems, err)
		}
	}
	for _, nic := range links {
		asked, has := wanted[nic.Attrs().Index], a.on(nic.Attrs().Index) != nil
		if asked == "" || has {
			continue
		}
		if err := a.attach(nic, asked); err != nil {
			if !isDeleted(nic.Attrs().Index) {
				problems = append(problems, err)
			}
			continue
		}
		log.Info(fmt.Sprintf("at work on %s", nic.Attrs().Name))
	}
	return problems
}

// wanted returns the indexes of the interfaces that the programs belong on, each with the name that requested it.
func (a *Agent) wanted(links []netlink.Link) (wanted map[int]string, problems []error) {
	wanted = map[int]string{}
	if len(a.opt.Interfaces) == 0 {
		for _, l := range links {
			// An interface that goes down for a while keeps its program.
			if arrivesOn(l, links) && (isUp(l) || a.on(l.Attrs().Index) != nil) {
				wanted[l.Attrs().Index] = l.Attrs().Name
			}
		}
		if len(wanted) == 0 {
			problems = append(problems, fmt.Errorf("%w: waiting for one", ErrNoInterface))
		}
		return wanted, problems
	}
	for _, name := range a.opt.Interfaces {
		if l := byName(links, name); l != nil && isEthernet(l) {
			wanted[l.Attrs().Index] = name
			continue
		}
		// Renamed: packets arrive there as before, as long as no other interface has the name.
		at := slices.IndexFunc(a.attached, func(on *attached) bool {
			return on.asked == name && byIndex(links, on.index) != nil
		})
		if at < 0 {
			problems = append(problems, fmt.Errorf("there is no Ethernet interface %s: waiting for it", name))
			continue
		}
		on := a.attached[at]
		wanted[on.index] = name
		problems = append(problems,
			fmt.Errorf("interface %s has the name %s now: name it so (--interface), for the next start would not find it",
				name, byIndex(links, on.index).Attrs().Name))
	}
	return wanted, problems
}

// on returns the programs on the interface with that index, or nil.
func (a *Agent) on(index int) *attached {
	for _, on := range a.attached {
		if on.index == index {
			return on
		}
	}
	return nil
}
