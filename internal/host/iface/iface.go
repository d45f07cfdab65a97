// SPDX-License-Identifier: Apache-2.0

// Package iface watches network interfaces: whether they exist and are up, their MAC addresses, their addresses, and
// the subnets that they reach directly.
package iface

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Errors that callers may test for.
var (
	// ErrNotFound means that this namespace has no interface of that name.
	ErrNotFound = errors.New("no such interface")
	// ErrGone means that an interface was deleted, or moved to another namespace, while it was read.
	ErrGone = errors.New("the interface was deleted")
)

// State is an interface at one moment.
type State struct {
	Name string
	// Index changes if the interface is deleted and recreated.
	Index int
	// Gone is true if the watched interface was deleted, or moved to another namespace, and no interface of its name
	// exists now. Only Name and the last Index are set then.
	Gone bool
	// Up is true if the interface is administratively up and has a carrier.
	Up  bool
	MAC net.HardwareAddr
	// Addresses are the interface's addresses, with their prefix lengths.
	Addresses []netip.Prefix
	// Subnets are the on-link prefixes, sorted: those of the addresses, and of the routes without a gateway.
	Subnets []netip.Prefix
}

// Interfaces are watched interfaces. Its methods work in the namespace that the
// thread calling Watch was in.
type Interfaces struct {
	mu      sync.Mutex // held to read and replace watched and losses
	watched []watched
	handle  *netlink.Handle
	events  *nl.NetlinkSocket
	changes chan struct{}
	driver  driver // nil where there is none
	// losses are the frames that XDP lost since the watch began, by interface, as they were read last.
	losses map[int]uint64
}

// driver reads an interface's driver, as *ethtool.Ethtool does.
type driver interface {
	Stats(name string) (map[string]uint64, error)
	DriverName(name string) (string, error)
	Close()
}

type watched struct {
	name  string // when the watch began
	index int
	lost  uint64 // frames that XDP had lost when the watch began
	gone  bool   // as of the last read
}

// Watch starts to watch the interfaces of these names.
func Watch(names ...string) (*Interfaces, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	i := &Interfaces{handle: handle, changes: make(chan struct{}, 1)}
	if i.watched, err = i.find(names); err != nil {
		handle.Close()
		return nil, err
	}
	i.events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("listen to netlink: %w", err)
	}
	i.openDriver()
	go i.listen()
	return i, nil
}

func (i *Interfaces) find(names []string) (found []watched, err error) {
	for _, name := range names {
		link, err := i.handle.LinkByName(name)
		if netdump.IsLinkMissing(err) {
			return nil, fmt.Errorf("interface %q: %w in this network namespace: `ip link` lists those there are", name,
				ErrNotFound)
		}
		if err != nil {
			return nil, fmt.Errorf("look for the interface %q: %w", name, err)
		}
		found = append(found, watched{name: name, index: link.Attrs().Index})
	}
	return found, nil
}

// SetInterfaces replaces the watched interfaces; the counts of losses on those that stay continue. On an error the
// watched interfaces stay the same.
func (i *Interfaces) SetInterfaces(names []string) error {
	next, err := i.find(names)
	if err != nil {
		return err
	}
	for at := range next {
		before := i.watchedInterfaces()
		previous := slices.IndexFunc(before, func(w watched) bool { return w.index == next[at].index })
		if previous >= 0 {
			next[at].lost = before[previous].lost
		} else {
			next[at].lost, _ = i.countXDPLost(next[at])
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watched = next
	return nil
}

// Lookup returns the states of interfaces, in the order of their names, whether they are watched
// or not. Errors: ErrNotFound, ErrGone.
func (i *Interfaces) Lookup(names []string) ([]State, error) {
	found, err := i.find(names)
	if err != nil {
		return nil, err
	}
	return i.states(found)
}

// watchedInterfaces returns the watched interfaces. The slice is never modified.
func (i *Interfaces) watchedInterfaces() []watched {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.watched
}

// Changes is signalled after States may have changed; pending signals are merged.
func (i *Interfaces) Changes() <-chan struct{} { return i.changes }

// Close stops the watch.
func (i *Interfaces) Close() {
	i.events.Close()
	i.handle.Close()
	if i.driver != nil {
		i.driver.Close()
	}
}

// listen signals netlink messages about the interfaces, until Close.
func (i *Interfaces) listen() {
	for {
		messages, _, err := i.events.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			i.notifyChanged() // messages were lost, perhaps about these interfaces
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil:
			return
		}
		for _, m := range messages {
			if index, ok := indexOf(m.Data); ok && (i.has(index) || i.isMissing()) && !IsRenewal(m) {
				i.notifyChanged()
				break
			}
		}
	}
}

func (i *Interfaces) has(index int) bool {
	return slices.ContainsFunc(i.watchedInterfaces(), func(w watched) bool { return w.index == index })
}

// isMissing reports whether a watched interface is deleted: then any new interface may be the one that replaces it.
func (i *Interfaces) isMissing() bool {
	return slices.ContainsFunc(i.watchedInterfaces(), func(w watched) bool { return w.gone })
}

// indexOf reads the interface's index, which both struct ifinfomsg and struct
// ifaddrmsg have at offset 4, 32 bits in host byte order.
func indexOf(message []byte) (int, bool) {
	if len(message) < 8 {
		return 0, false
	}
	return int(binary.NativeEndian.Uint32(message[4:8])), true
}

func (i *Interfaces) notifyChanged() {
	select {
	case i.changes <- struct{}{}:
	default:
	}
}

// States reads the interfaces' states from the kernel, in the order of the names. A deleted interface is Gone, and one
// that is recreated with its name replaces it. Errors: ErrGone, if one is deleted while it is read.
func (i *Interfaces) States() ([]State, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	next, states := slices.Clone(i.watched), make([]State, len(i.watched))
	for at := range next {
		var err error
		if next[at], err = i.findAgain(next[at]); err != nil {
			return nil, err
		}
		states[at] = State{Name: next[at].name, Index: next[at].index, Gone: true}
		if next[at].gone {
			continue
		}
		if states[at], err = i.state(next[at]); err != nil {
			return nil, err
		}
	}
	i.watched = next
	return states, nil
}

// findAgain looks up an interface by its index, or by its name if that index is deleted.
func (i *Interfaces) findAgain(w watched) (watched, error) {
	_, err := i.handle.LinkByIndex(w.index)
	if !netdump.IsLinkMissing(err) {
		w.gone = false
		return w, wrapError("ask for the interface", err)
	}
	link, err := i.handle.LinkByName(w.name)
	if netdump.IsLinkMissing(err) {
		w.gone = true
		return w, nil
	}
	if err != nil {
		return w, wrapError("look for the interface "+w.name, err)
	}
	return watched{name: w.name, index: link.Attrs().Index}, nil
}

func wrapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (i *Interfaces) states(list []watched) ([]State, error) {
	states := make([]State, len(list))
	for at, w := range list {
		var err error
		if states[at], err = i.state(w); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func (i *Interfaces) state(w watched) (State, error) {
	link, err := i.handle.LinkByIndex(w.index)
	if netdump.IsLinkMissing(err) {
		return State{}, fmt.Errorf("%w: %s", ErrGone, w.name)
	}
	if err != nil {
		return State{}, fmt.Errorf("ask for the interface: %w", err)
	}
	attrs := link.Attrs()
	state := State{
		Name:  attrs.Name,
		Index: attrs.Index,
		Up:    attrs.Flags&net.FlagUp != 0 && attrs.RawFlags&unix.IFF_LOWER_UP != 0,
		MAC:   attrs.HardwareAddr,
	}
	if state.Addresses, err = i.addresses(link); err != nil {
		return State{}, fmt.Errorf("list the addresses of %s: %w", attrs.Name, err)
	}
	routes, err := i.routes(link)
	if err != nil {
		return State{}, fmt.Errorf("list the routes of %s: %w", attrs.Name, err)
	}
	state.Subnets = subnets(state.Addresses, routes)
	return state, nil
}

func (i *Interfaces) addresses(link netlink.Link) ([]netip.Prefix, error) {
	list, err := netdump.Consistent(func() ([]netlink.Addr, error) {
		return i.handle.AddrList(link,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, a := range list {
		if p, ok := prefixOf(a.IPNet); ok {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, nil
}

// routes returns the destinations that the main table reaches through the
// interface without a gateway.
func (i *Interfaces) routes(link netlink.Link) ([]netip.Prefix, error) {
	list, err := netdump.Consistent(func() ([]netlink.Route, error) {
		return i.handle.RouteList(link,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, r := range list {
		if r.Gw != nil || r.Via != nil || len(r.MultiPath) > 0 || r.Type != unix.RTN_UNICAST {
			continue
		}
		if p, ok := prefixOf(r.Dst); ok && p.Bits() > 0 {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if bits == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, ones), ok && bits == addr.BitLen()
}

// subnets merges lists of prefixes, without single addresses, which have no neighbours.
func subnets(lists ...[]netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range slices.Concat(lists...) {
		if !p.IsSingleIP() {
			all = append(all, p.Masked())
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Compare(b) })
	return slices.Compact(all)
}
