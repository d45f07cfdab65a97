// SPDX-License-Identifier: Apache-2.0

// Package hosttable hands VIPs, and full NAT's addresses, to a routing daemon of this host: each is a route of one
// address in a table of the kernel, from which the daemon announces it. Its routes are journalled, and it removes no
// others.
package hosttable

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Errors that callers may test for.
var (
	// ErrRouteExists: another program has a route in the place of one of ours.
	ErrRouteExists = errors.New("a route that this balancer has not made is there already")
	// ErrTableInUse: packets are routed by the table.
	ErrTableInUse = errors.New("an ip rule has packets go by the table")
	// ErrCorrupt: the journal is not one of ours.
	ErrCorrupt = errors.New("the journal of routes is damaged")
)

// route is a route of ours: to an address, in a table of the kernel, with a metric.
type route struct {
	Table  uint32     `json:"table"`
	VIP    netip.Addr `json:"vip"`
	Metric int        `json:"metric"`
}

// Table has routes to addresses in a table. It is not for use by several goroutines.
type Table struct {
	journal journalFile
	files   *durable.Files
	// installed are the routes that the journal has.
	installed map[route]bool
	// desired are the routes that the table is to have.
	desired []route
	// number is the number of the table.
	number uint32
}

// Open reads the journal, a file that files write, and takes over the routes that the previous process has added.
// Errors: ErrCorrupt.
func Open(journal string, files *durable.Files) (*Table, error) {
	ns, err := namespace.Current()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	t := &Table{installed: map[route]bool{}, files: files}
	if t.journal, err = journalIn(journal, ns, files); err != nil {
		return nil, err
	}
	routes, err := t.journal.read()
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		t.installed[r] = true
	}
	return t, nil
}

// Addresses are the addresses that have a route there.
func (t *Table) Addresses() []netip.Addr {
	there := map[netip.Addr]bool{}
	for r := range t.installed {
		there[r.VIP] = true
	}
	return slices.SortedFunc(maps.Keys(there), netip.Addr.Compare)
}

// SetAddresses makes these addresses, each with its metric, our only routes, all of them in this table. New routes are
// added before any is removed, so that an address whose metric changes always has one. On an error, all other routes
// are added nevertheless; a table in use gets no further address, and loses those that are not desired. Errors:
// ErrRouteExists, ErrTableInUse.
func (t *Table) SetAddresses(number uint32, metrics map[netip.Addr]int) error {
	inUse := checkUnused(number)
	desired := inTableOf(number, metrics)
	if inUse != nil {
		desired = t.withoutAdditions(metrics)
	}
	t.desired, t.number = slices.SortedFunc(maps.Keys(desired), compareRoutes), number
	return errors.Join(inUse, t.reconcile(desired))
}

// inTableOf returns the routes to addresses in a table.
func inTableOf(number uint32, metrics map[netip.Addr]int) map[route]bool {
	desired := make(map[route]bool, len(metrics))
	for address, metric := range metrics {
		desired[route{number, address, metric}] = true
	}
	return desired
}

// withoutAdditions returns the routes to those of the addresses that have one, each in the table that it is in: another
// metric there drops no packet that its route did not drop before.
func (t *Table) withoutAdditions(metrics map[netip.Addr]int) map[route]bool {
	desired := make(map[route]bool, len(t.installed))
	for r := range t.installed {
		if metric, wanted := metrics[r.VIP]; wanted {
			desired[route{r.Table, r.VIP, metric}] = true
		}
	}
	return desired
}

// compareRoutes orders routes by their addresses.
func compareRoutes(a, b route) int { return a.VIP.Compare(b.VIP) }

// reconcile journals the desired routes, adds them, and removes those that are not desired.
func (t *Table) reconcile(desired map[route]bool) error {
	if maps.Equal(desired, t.installed) {
		return nil
	}
	added := make([]route, 0, len(desired))
	for r := range desired {
		if !t.installed[r] {
			added = append(added, r)
		}
	}
	if err := t.journal.write(append(slices.Collect(maps.Keys(t.installed)), added...)); err != nil {
		return err
	}
	var errs []error
	for _, r := range added {
		// A route equal to ours is ours: a process that could not write its journal has left it.
		if err := r.add(); err != nil && !(errors.Is(err, ErrRouteExists) && r.exists()) {
			errs = append(errs, err)
			continue
		}
		t.installed[r] = true
	}
	for r := range t.installed {
		if desired[r] {
			continue
		}
		if err := r.remove(); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(t.installed, r)
	}
	return errors.Join(append(errs, t.journal.write(slices.Collect(maps.Keys(t.installed))))...)
}

// Restore puts routes back that were removed meanwhile, and returns their addresses; a journal that could not be
// written is written again.
func (t *Table) Restore() (again []netip.Addr, err error) {
	t.files.Retry()
	errs := []error{checkUnused(t.number)}
	for _, r := range t.desired {
		if !t.installed[r] {
			continue
		}
		switch err := r.add(); {
		case err == nil:
			again = append(again, r.VIP)
		case !errors.Is(err, ErrRouteExists): // it is there
			errs = append(errs, err)
		}
	}
	return again, errors.Join(errs...)
}

// RemoveAll removes all of our routes.
func (t *Table) RemoveAll() error {
	t.desired = nil
	return t.reconcile(nil)
}

// Clean removes the routes in the journal of a process that has ended.
func Clean(journal string) error {
	t, err := Open(journal, nil)
	if err != nil {
		return err
	}
	return t.RemoveAll()
}

// checkUnused refuses a table that an ip rule refers to, because our blackhole routes would drop packets. The main
// table is allowed: packets to an address of this host match the table local before it.
func checkUnused(number uint32) error {
	if number == unix.RT_TABLE_MAIN {
		return nil
	}
	rules, err := netdump.Consistent(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("see which tables packets go by: %w", err)
	}
	for _, rule := range rules {
		if rule.Table == int(number) {
			return fmt.Errorf(
				"put VIPs into the table %d of routes: %w (%d: %s), which would be lost there; write another table under bgp, which no rule has", number, ErrTableInUse, rule.Priority, rule)
		}
	}
	return nil
}

// netlinkRoute returns the route for netlink. Its type is blackhole, which needs no interface and no gateway, either of
// which could disappear.
func (r route) netlinkRoute() *netlink.Route {
	bits := r.VIP.BitLen()
	return &netlink.Route{Table: int(r.Table), Protocol: lb.RouteProtocol, Priority: r.Metric, Type: unix.RTN_BLACKHOLE,
		Dst: &net.IPNet{IP: r.VIP.AsSlice(), Mask: net.CIDRMask(bits, bits)}}
}

func (r route) String() string {
	return fmt.Sprintf("%s in the table %d with the metric %d", netip.PrefixFrom(r.VIP, r.VIP.BitLen()),
		r.Table, r.Metric)
}

func (r route) add() error {
	// NLM_F_EXCL: a route that is there stays.
	switch err := netlink.RouteAdd(r.netlinkRoute()); {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("add the route %s: %w: remove it, or write another table under bgp", r, ErrRouteExists)
	case err != nil:
		return fmt.Errorf("add the route %s: %w", r, err)
	}
	return nil
}

// exists reports whether the table has a route that only a balancer makes: of our protocol and type, with this metric.
func (r route) exists() bool {
	want := r.netlinkRoute()
	family := netlink.FAMILY_V4
	if r.VIP.Is6() {
		family = netlink.FAMILY_V6
	}
	const by = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_PROTOCOL | netlink.RT_FILTER_DST | netlink.RT_FILTER_TYPE
	there, err := netdump.Consistent(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, want,
			by)
	})
	return err == nil && slices.ContainsFunc(there, func(o netlink.Route) bool { return o.Priority == r.Metric })
}

// remove takes the route away, if it is still of our protocol and type.
func (r route) remove() error {
	if err := netlink.RouteDel(r.netlinkRoute()); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove the route %s: %w", r, err)
	}
	return nil
}
