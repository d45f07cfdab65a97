// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// follower keeps the host's addresses in the program's map up to date. The program decapsulates only packets whose
// outer destination is an address of the host.
type follower struct {
	vips   []netip.Addr
	roles  roleMap
	handle *netlink.Handle
	events *nl.NetlinkSocket
	done   chan struct{}

	mu       sync.Mutex
	notified map[netip.Addr]tcAgentRole
	problem  error // of the last update, if it failed
}

// roleMap is the part of *ebpf.Map that a follower needs.
type roleMap interface {
	Put(key, value any) error
	Delete(key any) error
}

// follow updates the roles once, and continues in the background until close.
func follow(vips []netip.Addr, roles roleMap) (*follower, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	f := &follower{vips: vips, roles: roles, handle: handle, done: make(chan struct{}),
		notified: map[netip.Addr]tcAgentRole{}}
	// Subscribe first, so that no change is missed in between.
	f.events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("listen to netlink: %w", err)
	}
	if err := f.refresh(); err != nil {
		f.events.Close()
		handle.Close()
		return nil, err
	}
	go f.listen()
	return f, nil
}

func (f *follower) listen() {
	defer close(f.done)
	for {
		_, _, err := f.events.Receive()
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil && !errors.Is(err, unix.ENOBUFS): // update also after lost messages
			return // each pass of Agent.look updates, too
		}
		f.refresh() // a failure is repeated, and reported, by Agent.reconcile
	}
}

// refresh updates the program's addresses from the host's.
func (f *follower) refresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem = f.logRoles()
	return f.problem
}

func (f *follower) logRoles() error {
	roles, err := f.ask()
	if err != nil {
		return fmt.Errorf("list the addresses of this host: %w", err)
	}
	for addr, role := range roles {
		if f.notified[addr] == role {
			continue
		}
		if err := f.roles.Put(addr.As16(), role); err != nil {
			return fmt.Errorf("tell the eBPF program of address %s: %w", addr, err)
		}
		f.notified[addr] = role
	}
	for addr := range f.notified {
		if _, there := roles[addr]; there {
			continue
		}
		if err := f.roles.Delete(addr.As16()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("tell the eBPF program that address %s is gone: %w", addr, err)
		}
		delete(f.notified, addr)
	}
	return nil
}

// ask returns the host's relevant addresses. Loopback addresses are no tunnel endpoints: the kernel does not accept
// packets for them from a link.
func (f *follower) ask() (map[netip.Addr]tcAgentRole, error) {
	roles := map[netip.Addr]tcAgentRole{}
	for _, vip := range f.vips {
		roles[vip] = tcAgentRoleAGENT_ROLE_VIP
	}
	list, err := netdump.Consistent(func() ([]netlink.Addr, error) {
		return f.handle.AddrList(nil,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.Unmap().IsLoopback() {
			roles[addr.Unmap()] |= tcAgentRoleAGENT_ROLE_OWN
		}
	}
	return roles, nil
}

// close stops following. It returns the error of the last update, if any.
func (f *follower) close() error {
	f.events.Close()
	<-f.done
	f.handle.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}
