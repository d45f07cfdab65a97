// SPDX-License-Identifier: Apache-2.0

package replyroutes

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// maxRoutes is how many routes are read of a family: with more, a reading would take a CPU for seconds.
const maxRoutes = 1 << 16

// errTooMany: there are more.
var errTooMany = fmt.Errorf("the kernel is asked where each reply goes: there are more than %d routes", maxRoutes)

// errPolicyRouting: other rules than the kernel's own choose between tables, or that a route asks for the
// source.
var errPolicyRouting = errors.New("routes depend on more than the destination")

// leastMTU are the smallest path MTUs that the kernel takes from routers (net.ipv4.route.min_pmtu; RFC 8200 section 5).
const minMTU4, minMTU6 = 552, 1280

// routeSnapshot is the result of a reading.
type routeSnapshot struct {
	routes lb.ReplyRoutes
	// kernelReason4 and kernelReason6 say why a family is left to the kernel; "" where it is not.
	kernelReason4, kernelReason6 string
}

func (p routeSnapshot) String() string {
	var parts []string
	for _, of := range []struct{ name, why string }{{"IPv4", p.kernelReason4}, {"IPv6", p.kernelReason6}} {
		if of.why == "" {
			of.why = "by mirrored routes"
		}
		parts = append(parts, of.name+" "+of.why)
	}
	return fmt.Sprintf("replies find their next hop: %s (%d next hops mirrored)", strings.Join(parts, ", "),
		len(p.routes.Hops))
}

// link is an interface that routes may leave by.
type link struct {
	source     mac
	mtu4, mtu6 uint32
}

// snapshotBuilder makes a snapshot, of its inputs.
type snapshotBuilder struct {
	links map[int]link
	// hops are the numbers of next hops in routes.Hops.
	hops map[neighbour]int
	macs map[neighbour]mac
	made routeSnapshot
}

// read reads the routes of the calling thread's namespace, and has changes of their routers noticed.
func (f *Follower) read() (routeSnapshot, error) {
	links, err := readLinks()
	if err != nil {
		return routeSnapshot{}, err
	}
	r := &snapshotBuilder{links: links, hops: map[neighbour]int{}}
	var all []table
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		t := table{family: family}
		if t.kernelReason, err = f.kernelReason(family); err != nil {
			return routeSnapshot{}, err
		}
		if t.kernelReason == "" {
			if err := t.read(); errors.Is(err, errPolicyRouting) {
				t.kernelReason = "by the kernel, for " + err.Error()
			} else if err != nil {
				return routeSnapshot{}, err
			}
		}
		all = append(all, t)
	}
	routers := map[neighbour]mac{}
	for _, t := range all {
		for _, route := range t.main {
			if route.router.index != 0 {
				routers[route.router] = mac{}
			}
		}
	}
	f.watchNeighbours(routers)
	if err := readNeighbours(routers); err != nil {
		return routeSnapshot{}, err
	}
	f.watchNeighbours(routers)
	r.macs = routers
	for _, t := range all {
		r.addTable(&t)
	}
	r.made.routes.IPv4, r.made.kernelReason4 = all[0].kernelReason == "", all[0].kernelReason
	r.made.routes.IPv6, r.made.kernelReason6 = all[1].kernelReason == "", all[1].kernelReason
	return r.made, nil
}

// watchNeighbours has changes of these neighbours noticed.
func (f *Follower) watchNeighbours(routers map[neighbour]mac) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routers = map[neighbour]mac{}
	for n, address := range routers {
		f.routers[n] = address
	}
}

// kernelReason says why a family is left to the kernel, before its routes are read; "" if it is not.
func (f *Follower) kernelReason(family uint8) (string, error) {
	name := "ipv4"
	if family == unix.AF_INET6 {
		name = "ipv6"
	}
	ingress := f.ingress()
	if len(ingress) == 0 {
		return "by the kernel, for no interface is known yet", nil
	}
	for _, nic := range ingress {
		on, err := os.ReadFile("/proc/sys/net/" + name + "/conf/" + nic + "/forwarding")
		if err != nil || strings.TrimSpace(string(on)) != "1" {
			return "by the kernel, for it does not forward from " + nic, nil
		}
	}
	rules := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	rules.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}})
	messages, err := rules.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
	if err != nil {
		return "", fmt.Errorf("read the kernel's routing rules: %w", err)
	}
	tables := map[uint32]bool{}
	for _, m := range messages {
		tables[defaultRule(m)] = true
	}
	if tables[unix.RT_TABLE_UNSPEC] || !tables[unix.RT_TABLE_LOCAL] || !tables[unix.RT_TABLE_MAIN] {
		return "by the kernel, for there are other routing rules than its own (`ip rule`)", nil
	}
	return "", nil
}

// readLinks reads the Ethernet interfaces that are up.
func readLinks() (map[int]link, error) {
	all, err := netdump.Links()
	if err != nil {
		return nil, fmt.Errorf("read the interfaces: %w", err)
	}
	links := map[int]link{}
	for _, l := range all {
		a := l.Attrs()
		if a.Flags&net.FlagUp == 0 || a.RawFlags&unix.IFF_RUNNING == 0 || a.EncapType != "ether" ||
			len(a.HardwareAddr) != lb.MACLength || a.Flags&net.FlagLoopback != 0 {
			continue
		}
		mtu := uint32(min(a.MTU, 1<<16-1))
		links[a.Index] = link{source: mac(a.HardwareAddr), mtu4: mtu, mtu6: min(mtu, mtu6(a.Name))}
	}
	return links, nil
}

// mtu6 is the MTU of an interface for IPv6; 0 where it has no IPv6.
func mtu6(name string) uint32 {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/mtu")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return uint32(n)
}

// readNeighbours adds the MAC addresses of neighbours that the kernel knows.
func readNeighbours(of map[neighbour]mac) error {
	indices := map[int]bool{}
	for n := range of {
		indices[n.index] = true
	}
	for index := range indices {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			list, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
				return netlink.NeighListExecute(netlink.Ndmsg{Family: uint8(family), Index: uint32(index)})
			})
			if err != nil {
				return fmt.Errorf("read the neighbours: %w", err)
			}
			for _, e := range list {
				address, ok := netip.AddrFromSlice(e.IP)
				n := neighbour{e.LinkIndex, address.Unmap()}
				if _, wanted := of[n]; ok && wanted && e.State&validStates != 0 && len(e.HardwareAddr) == lb.MACLength {
					of[n] = mac(e.HardwareAddr)
				}
			}
		}
	}
	return nil
}

// addTable takes the routes of a family over.
func (r *snapshotBuilder) addTable(t *table) {
	if t.kernelReason != "" {
		return
	}
	slices.SortStableFunc(t.main, func(a, b route) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), a.prefix.Bits()-b.prefix.Bits())
	})
	for i, route := range t.main {
		if i > 0 && t.main[i-1].prefix == route.prefix {
			// The kernel chooses by metrics, and by which of them work.
			r.made.routes.Routes[len(r.made.routes.Routes)-1].Hop = lb.AskKernel
			continue
		}
		r.made.routes.Routes = append(r.made.routes.Routes,
			lb.ReplyRoute{Prefix: route.prefix, Hop: r.nextHop(t, route.router)})
	}
	r.made.routes.Local = append(r.made.routes.Local, t.local...)
}

// nextHop returns the number of a next hop, which it adds; AskKernel where the kernel's answer is not certain.
func (r *snapshotBuilder) nextHop(t *table, router neighbour) int {
	address, l := r.macs[router], r.links[router.index]
	if router.index == 0 || address == (mac{}) || l.mtu4 == 0 {
		return lb.AskKernel
	}
	if at, known := r.hops[router]; known {
		return at
	}
	mtu, least := l.mtu4, uint32(minMTU4)
	if t.family == unix.AF_INET6 {
		mtu, least = l.mtu6, minMTU6
	}
	if t.reducedMTU {
		// Routers have reported paths that take less; which packets those are only the kernel knows.
		mtu = min(mtu, least)
	}
	at := len(r.made.routes.Hops)
	r.hops[router] = at
	r.made.routes.Hops = append(r.made.routes.Hops,
		lb.NextHop{Interface: router.index, MAC: address, Source: l.source, MTU: mtu})
	return at
}
