// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// sourceService is a service of five hosts, weights 1 to 5, that goes by the source.
func sourceService(port, backendPort uint16) lb.RoutedService {
	s := routedService(port, lb.SourceHash, 5)
	for i := range s.Backends {
		s.Backends[i].Port, s.Backends[i].Weight = backendPort, uint16(i+1)
	}
	return s
}

// hostsOf returns whom each slot of a service's table leads to, by address.
func hostsOf(t *testing.T, s lb.RoutedService) []netip.Addr {
	t.Helper()
	var hosts []netip.Addr
	for _, owner := range buildAfter(t, &s, nil).ownersOf() {
		hosts = append(hosts, owner.Addr())
	}
	return hosts
}

// TestSourceTables: the same hosts make the same table, in whatever order and on whatever
// ports, whichever host is down, in small tables and large ones; and the weights hold.
func TestSourceTables(t *testing.T) {
	for _, size := range []uint32{0, largeTable} {
		one, other := sourceService(80, 8080), sourceService(5060, 5060)
		one.TableSize, other.TableSize = size, size
		slices.Reverse(other.Backends)
		slices.Reverse(other.Paths)
		hosts := hostsOf(t, one)
		if !slices.Equal(hosts, hostsOf(t, other)) {
			t.Errorf("%d slots: other ports and another order make another table", size)
		}
		counts := map[netip.Addr]int{}
		for _, host := range hosts {
			counts[host]++
		}
		for _, b := range one.Backends {
			if share := len(hosts) * int(b.Weight) / 15; counts[b.Address] < share-2 || counts[b.Address] > share+2 {
				t.Errorf("%d slots: %v has %d, want %d", size, b.Address, counts[b.Address], share)
			}
		}
		one.Paths[1].MAC, other.Paths[3].MAC = nil, nil
		if down := hostsOf(t, one); !slices.Equal(down, hostsOf(t, other)) || slices.Equal(down, hosts) {
			t.Errorf("%d slots: with a host down, the tables differ", size)
		}
	}
}

// TestSourceTablesOfSharedHosts: backends that share an address are told apart by their ports, and those of other
// addresses still meet. That holds while one of them is down: then only its slots move.
func TestSourceTablesOfSharedHosts(t *testing.T) {
	one, other := sourceService(80, 8080), sourceService(81, 8081)
	one.Backends[1].Address, one.Backends[1].Port = one.Backends[0].Address, 9090
	table := buildAfter(t, &one, nil)
	if all := table.All; all[0] == all[1] || all[0].Port() == 0 || all[2].Port() != 0 {
		t.Errorf("the table knows its backends by %v", all)
	}
	one.Paths[1].MAC = nil
	if again := buildAfter(t, &one, nil); again.All[0] != table.All[0] {
		t.Errorf("with the other one down, it is known by %v instead of %v", again.All[0], table.All[0])
	}
	alone, flow := identitiesOf(&other), other
	flow.Scheduler = lb.Maglev
	for i, b := range identitiesOf(&flow) {
		if b.Port() != 8081 || alone[i].Port() != 0 {
			t.Errorf("by flow %v, by source %v", b, alone[i])
		}
	}
}
