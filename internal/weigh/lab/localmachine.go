// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// Location selects a machine's interface for a lab: by its name, by its address, or by both.
type Location struct {
	Interface string
	Address   netip.Addr
}

// LocalMachine is the machine that this process runs on (more precisely, its network namespace) as the only host of a
// lab: the far end of a Machine.
type LocalMachine struct {
	*Host
	// Prefix is the segment's prefix, from the interface's address.
	Prefix netip.Prefix
}

// journalName is the name of the journal of a worker's changes to its machine's network.
const journalName = "bench"

// NewLocalMachine claims this machine: no other run can use it until it is closed. NewLocalMachine undoes what a killed
// worker has left. dir is the host's directory, which exists. Errors: hostnet.ErrBusy, and other faults of the machine.
func NewLocalMachine(name, dir string, where Location) (*LocalMachine, error) {
	l := &Lab{Dir: dir, local: &local{}}
	h := &Host{Name: name, Dir: dir, lab: l, role: topology.Balancer}
	l.Balancer = h
	l.usage.Init()
	link, prefix, err := where.find()
	if err != nil {
		return nil, err
	}
	h.Interface, h.MAC, h.IPv4 = link.Attrs().Name, link.Attrs().HardwareAddr, prefix.Addr()
	if l.local.changes, err = hostnet.Open("", journalName); err != nil {
		return nil, err
	}
	if err := errors.Join(removeRoutes(), h.holdNamespaces()); err != nil {
		return nil, errors.Join(err, l.closeLocal())
	}
	return &LocalMachine{Host: h, Prefix: prefix}, nil
}

// holdNamespaces opens the namespaces of the process, so that they can be entered.
func (h *Host) holdNamespaces() (err error) {
	if h.netns, err = os.Open("/proc/self/ns/net"); err != nil {
		return err
	}
	if h.inode, err = netns.Inode(h.netns); err != nil {
		return err
	}
	if h.mntns, err = os.Open("/proc/self/ns/mnt"); err != nil {
		return err
	}
	if h.root, err = netns.RootHere(); err != nil {
		return err
	}
	h.keeper, err = netns.NewKeeper(func() error { return nil })
	return err
}

// find returns the interface, and its address with the segment's prefix.
func (w Location) find() (netlink.Link, netip.Prefix, error) {
	links, err := netdump.Links()
	if err != nil {
		return nil, netip.Prefix{}, fmt.Errorf("list the interfaces: %w", err)
	}
	var names []string
	for _, link := range links {
		at := link.Attrs()
		if at.Flags&net.FlagLoopback != 0 || w.Interface != "" && at.Name != w.Interface {
			names = append(names, at.Name)
			continue
		}
		addresses, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(link, netlink.FAMILY_V4)
		})
		if err != nil {
			return nil, netip.Prefix{}, fmt.Errorf("list the addresses of %s: %w", at.Name, err)
		}
		for _, address := range addresses {
			ip, ok := netip.AddrFromSlice(address.IP.To4())
			ones, _ := address.Mask.Size()
			if !ok || ones == 32 || w.Address.IsValid() && ip != w.Address {
				continue
			}
			if at.Flags&net.FlagUp == 0 {
				return nil, netip.Prefix{}, fmt.Errorf("interface %s is down", at.Name)
			}
			return link, netip.PrefixFrom(ip, ones), nil
		}
		names = append(names, at.Name)
	}
	switch {
	case w.Address.IsValid() && w.Interface != "":
		return nil, netip.Prefix{}, fmt.Errorf("interface %s does not have the address %v", w.Interface, w.Address)
	case w.Address.IsValid():
		return nil, netip.Prefix{}, fmt.Errorf("no interface has the address %v (there are %v)", w.Address, names)
	default:
		return nil, netip.Prefix{}, fmt.Errorf("no interface %s with an IPv4 address (there are %v)",
			w.Interface, names)
	}
}

// AtEnd registers a function that is called when the machine that this process runs on is released, and replaces the
// function of that name; nil removes it.
func (h *Host) AtEnd(name string, do func() error) {
	local := h.lab.local
	local.mu.Lock()
	defer local.mu.Unlock()
	if local.atEnd == nil {
		local.atEnd = map[string]func() error{}
	}
	delete(local.atEnd, name)
	if do != nil {
		local.atEnd[name] = do
	}
}

func (l *Lab) closeLocal() error {
	var ending sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, p := range l.processes() {
		ending.Go(func() {
			err := p.Stop(context.Background())
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	ending.Wait()
	for _, do := range l.local.atEnd {
		errs = append(errs, do())
	}
	if l.usage.Meter != nil {
		errs = append(errs, l.usage.Meter.Close())
	}
	if l.Balancer.keeper != nil {
		errs = append(errs, removeRoutes())
		l.Balancer.leave()
	}
	return errors.Join(append(errs, l.local.changes.Close())...)
}

// routeProtocol marks the routes of a worker, so that the next worker finds those of a killed one (rtnetlink(7): the
// values from RTPROT_STATIC on are the users'; see /etc/iproute2/rt_protos for those in use).
const routeProtocol = 219

// removeRoutes removes all routes of workers from this namespace.
func removeRoutes() error {
	routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: routeProtocol},
			netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return fmt.Errorf("list this machine's routes: %w", err)
	}
	for _, route := range routes {
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove the route to %v: %w", route.Dst, err)
		}
	}
	return nil
}
