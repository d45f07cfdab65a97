// SPDX-License-Identifier: Apache-2.0

package view

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// TestNearClients: those in a link's subnets with a backend, and a backend behind a router.
func TestNearClients(t *testing.T) {
	links := []iface.State{
		{Name: "eth0", Index: 2, Subnets: prefixes("192.0.2.0/24", "2001:db8::/64")},
		{Name: "br0", Index: 3, Subnets: prefixes("172.17.0.0/16", "172.17.9.0/24", "fe80::/64", "2001:db8:17::/64")},
	}
	for name, test := range map[string]struct {
		backend string
		entry   paths.Entry
		want    []lb.Near
	}{
		"on the bridge": {"172.17.0.2", reachedBy(links[1], ""),
			[]lb.Near{{Interface: 3, Prefixes: prefixes("172.17.0.0/16")}}},
		"in two subnets": {"172.17.9.2", reachedBy(links[1], ""),
			[]lb.Near{{Interface: 3, Prefixes: prefixes("172.17.0.0/16")}}},
		"IPv6": {"2001:db8:17::2", reachedBy(links[1], ""),
			[]lb.Near{{Interface: 3, Prefixes: prefixes("2001:db8:17::/64")}}},
		"behind a router": {"10.9.0.1", reachedBy(links[0], "192.0.2.9"),
			[]lb.Near{{Interface: 2, Prefixes: prefixes("10.9.0.1/32")}}},
		"IPv6, behind a router": {"2001:db8:f::1", reachedBy(links[0], "2001:db8::9"),
			[]lb.Near{{Interface: 2, Prefixes: prefixes("2001:db8:f::1/128")}}},
		"reached elsewhere": {"172.17.0.2", reachedBy(links[0], "192.0.2.9"),
			[]lb.Near{{Interface: 2, Prefixes: prefixes("172.17.0.2/32")}}},
		"no route yet": {"172.17.0.2", paths.Entry{},
			[]lb.Near{{Interface: 3, Prefixes: prefixes("172.17.0.0/16")}}},
		"no route at all": {"10.9.0.1", paths.Entry{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := &View{Layout: &Layout{Backends: []netip.Addr{netip.MustParseAddr(test.backend)}, Hairpinned: []int{0}},
				Known: []*paths.Entry{&test.entry}}
			h := HairpinsOf(v, links, usualPorts)
			if diff := cmp.Diff(test.want, h.Near, cmp.Comparer(func(a, b netip.Prefix) bool {
				return a == b
			})); diff != "" {
				t.Errorf("near clients (-want +got):\n%s", diff)
			}
			if h.FirstPort != 61000 || h.LastPort != 65535 || h.Trouble != "" {
				t.Errorf("ports %d-%d, %s", h.FirstPort, h.LastPort, h.Trouble)
			}
		})
	}
}

// reachedBy is the path entry of a backend by a link, through a router where there is one.
func reachedBy(link iface.State, router string) paths.Entry {
	e := paths.Entry{Route: paths.Route{Interface: link.Name, Index: link.Index}}
	if router != "" {
		e.Gateway = netip.MustParseAddr(router)
	}
	return e
}

// TestFewestPrefixes: none is in another, and there are as many as an interface can have.
func TestFewestPrefixes(t *testing.T) {
	var many []netip.Prefix
	for i := range lb.MaxNear + 3 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32),
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32))
	}
	many = append(many, prefixes("2001:db8::/64", "2001:db8::1/128")...)
	kept, left := mergePrefixes(many)
	if len(kept) != lb.MaxNear+1 || left != 3 || !slices.Contains(kept, netip.MustParsePrefix("2001:db8::/64")) {
		t.Errorf("%d are left out, and these stay: %v", left, kept)
	}
	if kept, left := mergePrefixes(prefixes("10.0.0.5/32", "10.1.0.0/16", "10.0.0.0/24", "10.0.0.0/8",
		"11.0.0.0/8")); left != 0 || !slices.Equal(kept, prefixes("10.0.0.0/8", "11.0.0.0/8")) {
		t.Errorf("these stay: %v", kept)
	}
}

// TestPortsBeside the host's own.
func TestPortsBeside(t *testing.T) {
	for _, test := range []struct{ first, last, from, to uint16 }{
		{32768, 60999, 61000, 65535},
		{1024, 63487, 63488, 65535},
		{10000, 65535, 1024, 9999},
		{32768, 65000, 1024, 32767},
		{1024, 65000, 65001, 65535},
		{1024, 65535, 0, 0},
		{1087, 65500, 0, 0},
	} {
		if from, to := portsBeside(test.first, test.last); from != test.from || to != test.to {
			t.Errorf("beside %d-%d are %d-%d, want %d-%d", test.first, test.last, from, to, test.from, test.to)
		}
	}
}

// TestNoPortsForHairpins is said with its cause, and near clients are refused.
func TestNoPortsForHairpins(t *testing.T) {
	v := &View{Layout: &Layout{Backends: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Hairpinned: []int{0}},
		Known: []*paths.Entry{{}}}
	links := []iface.State{{Name: "eth0", Index: 2, Subnets: prefixes("192.0.2.0/24")}}
	for ports, want := range map[string]string{"1024 65535": "1024-65535", "gone": "gone"} {
		v.Hairpin = HairpinsOf(v, links, ports)
		if problems := v.HairpinProblems(); !v.Hairpin.On() || v.Hairpin.LastPort != 0 || len(problems) != 1 ||
			!strings.Contains(problems[0], want) {
			t.Errorf("%q: on: %v, problems %q", ports, v.Hairpin.On(), problems)
		}
	}
}

// TestNoRoomForHairpins: one network too many is said as well as several.
func TestNoRoomForHairpins(t *testing.T) {
	for left, want := range []string{"", "clients in 1 networks", "clients in 2 networks"} {
		v := &View{}
		v.Hairpin.Left = left
		if got := strings.Join(v.HairpinProblems(), "\n"); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%d networks are left: problems %q, want %q", left, got, want)
		}
	}
}

// TestHairpinsAreMadeAnew of another layout, path, link or range of ports, and of nothing else.
func TestHairpinsAreMadeAnew(t *testing.T) {
	links := []iface.State{{Name: "eth0", Index: 2, Subnets: prefixes("192.0.2.0/24")}}
	before := &View{Layout: &Layout{Backends: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Hairpinned: []int{0}},
		Known: []*paths.Entry{{}}}
	before.Hairpin = HairpinsOf(before, links, usualPorts)
	for name, test := range map[string]struct {
		layout *Layout
		known  []*paths.Entry
		links  []iface.State
		ports  string
		want   bool
	}{
		"nothing new":    {before.Layout, slices.Clone(before.Known), slices.Clone(links), usualPorts, true},
		"another layout": {&Layout{}, before.Known, links, usualPorts, false},
		"another path":   {before.Layout, []*paths.Entry{{}}, links, usualPorts, false},
		"another subnet": {before.Layout, before.Known,
			[]iface.State{{Name: "eth0", Index: 2, Subnets: prefixes("192.0.2.0/25")}}, usualPorts, false},
		"another link": {before.Layout, before.Known,
			[]iface.State{{Name: "eth0", Index: 3, Subnets: prefixes("192.0.2.0/24")}}, usualPorts, false},
		"other ports": {before.Layout, before.Known, links, "1024 65535", false},
	} {
		next := &View{Layout: test.layout, Known: test.known}
		if got := before.Hairpin.IsOf(before, next, test.links, test.ports); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// usualPorts is PortRange as Linux has it.
const usualPorts = "32768\t60999\n"
