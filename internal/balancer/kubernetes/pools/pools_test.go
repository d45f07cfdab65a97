// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

func TestParse(t *testing.T) {
	got, err := Parse("f", []byte(`pools:
  - name: public
    addresses: [192.0.2.0/29, 198.51.100.7, "2001:db8::10-2001:db8::1f"]
  - name: partners
    addresses: [203.0.113.0/24]
    asked_only: true
    namespaces: [shop, bank]
`))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(got)
	want := "[{public [192.0.2.0/29 198.51.100.7 2001:db8::10-2001:db8::1f] false []} {partners [203.0.113.0/24] true [shop bank]}]"
	if text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if !got[0].Contains(netip.MustParseAddr("192.0.2.7")) || got[0].Contains(netip.MustParseAddr("192.0.2.8")) {
		t.Error("192.0.2.0/29 does not end at 192.0.2.7")
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"pools: []": "f:1: pools: empty; add at least one pool",
		"pools: [{name: A, addresses: [192.0.2.0/28]}]":                                 `pools[0].name: "A" is not 1 to 63 lower-case letters`,
		"pools: [{name: a, addresses: [192.0.2.1/28]}]":                                 `pools[0].addresses[0]: "192.0.2.1/28" has bits beyond its length; write 192.0.2.0/28`,
		"pools: [{name: a, addresses: [192.0.2.9-192.0.2.1]}]":                          "ends before it begins; write 192.0.2.1-192.0.2.9",
		"pools: [{name: a, addresses: [\"192.0.2.9-2001:db8::1\"]}]":                    "begins and ends in different families",
		"pools: [{name: a, addresses: [127.0.0.0/8]}]":                                  `"127.0.0.0/8" has 127.0.0.0, which is no unicast address`,
		"pools: [{name: a, addresses: [x]}]":                                            `"x" is no network, range or address`,
		"pools: [{name: a, addresses: [192.0.2.0/28, 192.0.2.8-192.0.2.20]}]":           "pools[0].addresses[1]: 192.0.2.8-192.0.2.20 overlaps 192.0.2.0/28 of pools[0]",
		"pools: [{name: a, addresses: [192.0.2.1]}, {name: a, addresses: [192.0.2.2]}]": "pools[1].name: a is the name of pools[0], too",
		"pool: []": "did you mean pools?",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: no text makes the parser fail otherwise than by an error, and pools that it takes can be allocated from.
func FuzzParse(f *testing.F) {
	f.Add([]byte("pools: [{name: a, addresses: [192.0.2.0/28, 2001:db8::/120, 192.0.2.40-192.0.2.41]}]"))
	f.Add([]byte("pools: [{name: a, addresses: [0.0.0.0/0]}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := Parse("f", text)
		if err != nil {
			return
		}
		grants := Allocate(read, []Claim{claim("a/a", IPv4), claim("a/b", IPv6)})
		for _, g := range grants {
			for _, addr := range g.Addresses {
				if !slices.ContainsFunc(read, func(p Pool) bool { return p.Contains(addr) }) {
					t.Fatalf("%s is in no pool", addr)
				}
			}
		}
	})
}

// claim is a claim for TCP port 80 at an address of each family; the Service is as old as its name is late.
func claim(name string, families ...Family) Claim {
	namespace, _, _ := strings.Cut(name, "/")
	return Claim{Name: name, Namespace: namespace, Created: time.Unix(int64(name[len(name)-1]), 0), Families: families,
		Ports: []Port{{lb.TCP, 80}}, Field: "asked", PoolField: "pool"}
}

func addrs(text ...string) (list []netip.Addr) {
	for _, t := range text {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

func (c Claim) withRequested(text ...string) Claim { c.Requested = addrs(text...); return c }
func (c Claim) withHeld(text ...string) Claim {
	c.Held, c.Ours = addrs(text...), true
	return c
}
func (c Claim) of(pool string) Claim     { c.Pool = pool; return c }
func (c Claim) at(port uint16) Claim     { c.Ports = []Port{{lb.TCP, port}}; return c }
func (c Claim) requiring() Claim         { c.Require = true; return c }
func (c Claim) withForeignHeld() Claim   { c.Ours = false; return c }
func (c Claim) over(p lb.Protocol) Claim { c.Ports = []Port{{p, c.Ports[0].Number}}; return c }

const testPools = `pools:
  - name: public
    addresses: [192.0.2.0/30, "2001:db8::10-2001:db8::11"]
  - name: reserved
    addresses: [198.51.100.1-198.51.100.2]
    asked_only: true
  - name: bank
    addresses: [203.0.113.1]
    asked_only: true
    namespaces: [bank]
`

// TestAllocate: each case has each Service's addresses, and why it gets no more.
func TestAllocate(t *testing.T) {
	for _, c := range []struct {
		name   string
		claims []Claim
		want   string
	}{
		{"the ends of a network are not given away", []Claim{claim("n/a", IPv4), claim("n/b", IPv4),
			claim("n/c", IPv4)},
			"n/a held [] gets [192.0.2.1]; n/b held [] gets [192.0.2.2]; n/c held [] gets [] PoolExhausted pool: " +
				"all IPv4 addresses of the pool public are in use; add some, or ask for one that is shared (annotation addresses)"},
		{"an end of a network that is asked for", []Claim{claim("n/a", IPv4).withRequested("192.0.2.0")},
			"n/a held [] gets [192.0.2.0]"},
		{"dual stack", []Claim{claim("n/a", IPv6, IPv4)}, "n/a held [] gets [2001:db8::10 192.0.2.1]"},
		{"dual stack, one asked for", []Claim{claim("n/a", IPv4, IPv6).withRequested("198.51.100.1")},
			"n/a held [] gets [198.51.100.1 2001:db8::10]"},
		{"dual stack is preferred, and a family is exhausted", []Claim{claim("n/a", IPv6), claim("n/b", IPv6),
			claim("n/c", IPv4, IPv6)},
			"n/a held [] gets [2001:db8::10]; n/b held [] gets [2001:db8::11]; n/c held [] gets [192.0.2.1]"},
		{"dual stack is required, and a family is missing",
			[]Claim{claim("n/a", IPv4, IPv6).of("reserved").requiring()},
			"n/a held [] gets [] WrongFamily pool: no pool that the Service may use has IPv6 addresses (public, reserved, bank); add some, or change spec.ipFamilies"},
		{"dual stack is required, and a family is missing: the other family is free",
			[]Claim{claim("n/a", IPv6), claim("n/b", IPv6), claim("n/c", IPv4, IPv6).requiring(), claim("n/d", IPv4)},
			"n/a held [] gets [2001:db8::10]; n/b held [] gets [2001:db8::11]; " +
				"n/c held [] gets [] PoolExhausted pool: all IPv6 addresses of the pool public are in use; add some, or ask for one that is shared (annotation addresses); " +
				"n/d held [] gets [192.0.2.1]"},
		{"dual stack is required, and a family is missing: what was asked for is free",
			[]Claim{claim("n/a", IPv6).withHeld("2001:db8::10"), claim("n/b", IPv6).withHeld("2001:db8::11"),
				claim("n/c", IPv4, IPv6).requiring().withHeld("192.0.2.2").withRequested("192.0.2.1"),
				claim("n/d", IPv4), claim("n/e", IPv4)},
			"n/a held [2001:db8::10] gets [2001:db8::10]; n/b held [2001:db8::11] gets [2001:db8::11]; " +
				"n/c held [192.0.2.2] gets [192.0.2.2] PoolExhausted pool: all IPv6 addresses of the pool public are in use; add some, or ask for one that is shared (annotation addresses); " +
				"n/d held [] gets [192.0.2.1]; " +
				"n/e held [] gets [] PoolExhausted pool: all IPv4 addresses of the pool public are in use; add some, or ask for one that is shared (annotation addresses)"},
		{"what is held stays", []Claim{claim("n/a", IPv4), claim("n/b", IPv4).withHeld("192.0.2.1")},
			"n/a held [] gets [192.0.2.2]; n/b held [192.0.2.1] gets [192.0.2.1]"},
		{"two hold the same: the older one keeps it", []Claim{claim("n/b", IPv4).withHeld("192.0.2.1"),
			claim("n/a", IPv4).withHeld("192.0.2.1")},
			"n/a held [192.0.2.1] gets [192.0.2.1]; n/b held [] gets [192.0.2.2]"},
		{"two hold the same at different ports", []Claim{claim("n/a", IPv4).withHeld("192.0.2.1"),
			claim("n/b", IPv4).at(443).withHeld("192.0.2.1")},
			"n/a held [192.0.2.1] gets [192.0.2.1]; n/b held [192.0.2.1] gets [192.0.2.1]"},
		{"an address is shared by port, and by protocol", []Claim{claim("n/a", IPv4).withRequested("192.0.2.1"),
			claim("m/b", IPv4).at(443).withRequested("192.0.2.1"), claim("n/c", IPv4).over(lb.UDP).withRequested("192.0.2.1")},
			"m/b held [] gets [192.0.2.1]; n/a held [] gets [192.0.2.1]; n/c held [] gets [192.0.2.1]"},
		{"an address is in use", []Claim{claim("n/a", IPv4).withRequested("192.0.2.1"),
			claim("n/b", IPv4).withRequested("192.0.2.1")},
			"n/a held [] gets [192.0.2.1]; n/b held [] gets [] AddressInUse asked: n/a has a port of this Service at 192.0.2.1 already; use other ports, or another address"},
		{"a request comes before none", []Claim{claim("n/a", IPv4), claim("n/b", IPv4).withRequested("192.0.2.1")},
			"n/a held [] gets [192.0.2.2]; n/b held [] gets [192.0.2.1]"},
		{"another address is asked for", []Claim{claim("n/a", IPv4).withHeld("192.0.2.1").withRequested("192.0.2.2")},
			"n/a held [192.0.2.1] gets [192.0.2.2]"},
		{"what is asked for cannot be had: what is held stays",
			[]Claim{claim("n/a", IPv4).withHeld("192.0.2.1").withRequested("10.0.0.1")},
			"n/a held [192.0.2.1] gets [192.0.2.1] OutsidePools asked: 10.0.0.1 is in no pool (public, reserved, bank); ask for one that is, or add it to a pool"},
		{"the wrong family", []Claim{claim("n/a", IPv4).withRequested("2001:db8::10")},
			"n/a held [] gets [] WrongFamily asked: 2001:db8::10 is IPv6, and the Service has IPv4 only; change spec.ipFamilies, or ask for another"},
		{"a pool of other namespaces", []Claim{claim("n/a", IPv4).withRequested("203.0.113.1"), claim("n/b", IPv4).of("bank")},
			"n/a held [] gets [] OutsidePools asked: 203.0.113.1 is in the pool bank, which is for other namespaces than n; " +
				"n/b held [] gets [] NoPool pool: the pool bank is for other namespaces than n"},
		{"a pool of its own namespace", []Claim{claim("bank/a", IPv4).of("bank")}, "bank/a held [] gets [203.0.113.1]"},
		{"no such pool", []Claim{claim("n/a", IPv4).of("publik")},
			`n/a held [] gets [] NoPool pool: there is no pool "publik"; use one of public, reserved, bank`},
		{"a pool that is named moves a Service there", []Claim{claim("n/a", IPv4).withHeld("192.0.2.1").of("reserved"),
			claim("n/b", IPv4)},
			"n/a held [192.0.2.1] gets [198.51.100.1]; n/b held [] gets [192.0.2.1]"},
		{"another pool than the address asked for", []Claim{claim("n/a", IPv4).of("public").withRequested("198.51.100.1")},
			"n/a held [] gets [] OutsidePools asked: 198.51.100.1 is in the pool reserved, and the Service asks for the pool public"},
		{"a pool that shrank: the Service keeps what it has, and is named",
			[]Claim{claim("n/a", IPv4).withHeld("10.0.0.1")},
			"n/a held [10.0.0.1] gets [10.0.0.1] OutsidePools : 10.0.0.1 is in no pool any more (public, reserved, bank); the Service keeps it until it asks for another (annotation addresses)"},
		{"an address outside of the pools that another wrote is not served",
			[]Claim{claim("n/a", IPv4).withHeld("10.0.0.1").withForeignHeld()}, "n/a held [] gets [192.0.2.1]"},
		{"a family that the Service has lost", []Claim{claim("n/a", IPv4).withHeld("192.0.2.1", "2001:db8::10")},
			"n/a held [192.0.2.1] gets [192.0.2.1]"},
		{"nothing to serve", []Claim{{Name: "n/a", Namespace: "n", Families: []Family{IPv4}}}, "n/a held [] gets []"},
		{"nothing to serve any more: the Service keeps what it has", []Claim{{Name: "n/a", Namespace: "n",
			Families: []Family{IPv4}, Held: addrs("192.0.2.1"), Ours: true}, claim("n/b", IPv4)},
			"n/a held [192.0.2.1] gets [192.0.2.1]; n/b held [] gets [192.0.2.2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			read, err := Parse("f", []byte(testPools))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // whatever the order is
				if got := show(Allocate(read, c.claims)); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				slices.Reverse(c.claims)
			}
		})
	}
}

func show(grants map[string]Grant) string {
	var lines []string
	for name, g := range grants {
		line := fmt.Sprintf("%s held %v gets %v", name, g.Held, g.Addresses)
		for _, p := range g.Problems {
			line += fmt.Sprintf(" %s %s: %s", p.Reason, p.Field, p.Message)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// TestAllocateIsStable: an address that is granted and held is granted again, however many Services there are, and none
// has an address of another.
func TestAllocateIsStable(t *testing.T) {
	read, err := Parse("f", []byte("pools: [{name: a, addresses: [10.0.0.0/16]}]"))
	if err != nil {
		t.Fatal(err)
	}
	claims := make([]Claim, 5000)
	for i := range claims {
		claims[i] = claim(fmt.Sprintf("n/s%d", i), IPv4)
	}
	first := Allocate(read, claims)
	seen := map[netip.Addr]bool{}
	for i, c := range claims {
		claims[i].Held = first[c.Name].Addresses
		seen[claims[i].Held[0]] = true
	}
	if len(seen) != len(claims) {
		t.Fatalf("%d Services have %d addresses", len(claims), len(seen))
	}
	for name, g := range Allocate(read, claims) {
		if !slices.Equal(g.Addresses, first[name].Addresses) || !slices.Equal(g.Held, g.Addresses) {
			t.Fatalf("%s had %v, and gets %v", name, first[name].Addresses, g.Addresses)
		}
	}
}
