// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestAccess: for every client, the smallest network of the lists decides like the first matching rule. The rules are
// random, over networks of a few bits, so that many contain each other.
func TestAccess(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	network := func() netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(random.UintN(256)), 0, 0, 1}),
			int(random.UintN(9))).Masked()
	}
	for range 3000 {
		lists := make([][]Rule, 1+random.IntN(2))
		for i := range lists {
			for range random.IntN(6) {
				r := Rule{Others: random.IntN(4) == 0, Serve: random.IntN(2) == 0}
				for range random.IntN(3) {
					r.Networks = append(r.Networks, network())
				}
				lists[i] = append(lists[i], r)
			}
		}
		allow, deny, noClients := Access(netip.MustParseAddr("192.0.2.1"), lists...)
		for first := range 256 {
			client := netip.AddrFrom4([4]byte{byte(first), 9, 9, 9})
			want, got := firstMatch(client, lists), !noClients && smallest(client, allow, deny)
			if got != want {
				t.Fatalf("%v: %s is served: %v, want %v (allow %v, deny %v, noClients %v)", lists, client, got, want,
					allow, deny, noClients)
			}
		}
	}
}

// firstMatch decides by the rules.
func firstMatch(client netip.Addr, lists [][]Rule) bool {
	for _, rules := range lists {
		for _, r := range rules {
			in := slices.ContainsFunc(r.Networks, func(n netip.Prefix) bool { return n.Contains(client) })
			if in == r.Others {
				continue
			}
			if !r.Serve {
				return false
			}
			break
		}
	}
	return true
}

// smallest decides as Jeoul does, by the longest prefix.
func smallest(client netip.Addr, allow, deny []netip.Prefix) bool {
	served, bits := len(allow) == 0, -1
	for _, list := range [][]netip.Prefix{allow, deny} {
		for _, n := range list {
			if n.Contains(client) && n.Bits() > bits {
				served, bits = &list[0] == first(allow), n.Bits()
			}
		}
	}
	return served
}

func first(list []netip.Prefix) *netip.Prefix {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// TestAccessFamilies: rules of one family do not match the other family's clients, except by negation.
func TestAccessFamilies(t *testing.T) {
	rules := []Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Others: true}}
	if _, _, noClients := Access(netip.MustParseAddr("2001:db8::1"), rules); !noClients {
		t.Error("a client of IPv6 is served, and only 10.0.0.0/8 must be")
	}
	allow, deny, noClients := Access(netip.MustParseAddr("192.0.2.1"), rules)
	if noClients || len(deny) > 0 || !slices.Equal(allow, rules[0].Networks) {
		t.Errorf("allow %v, deny %v, noClients %v", allow, deny, noClients)
	}
}
