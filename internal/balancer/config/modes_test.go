// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// sixModes has a service of each mode, on two interfaces.
const sixModes = `
interfaces: [eth0, eth0.100]
fullnat:
  addresses: [192.0.2.254, "2001:db8::fe"]
  ports: 30000-39999
services:
  - {name: l2dsr, vip: 192.0.2.100, port: 1, mode: l2dsr, backends: [{name: a, address: 192.0.2.1}]}
  - {name: ipip, vip: 192.0.2.100, port: 2, mode: ipip, mss: 1400, backends: [{name: a, address: 192.0.2.1}, {name: b, address: "2001:db8::1"}]}
  - {name: gue, vip: "2001:db8::100", port: 3, mode: gue, backends: [{name: a, address: 192.0.2.1}, {name: b, address: "2001:db8::1"}]}
  - {name: dscp, vip: 192.0.2.101, port: 4, mode: dscp, backends: [{name: a, address: 192.0.2.1}]}
  - {name: nat, vip: 192.0.2.100, port: 5, mode: nat, backends: [{name: a, address: 192.0.2.1, port: 80}, {name: b, address: 192.0.2.1, port: 81}]}
  - {name: fullnat, vip: "2001:db8::100", port: 6, mode: fullnat, backends: [{name: a, address: "2001:db8::1", port: 80}]}
`

func TestModes(t *testing.T) {
	got, err := Parse("f", []byte(sixModes))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"eth0", "eth0.100"}, got.Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	pool := FullNAT{Addresses: []PoolAddress{{Address: netip.MustParseAddr("192.0.2.254")},
		{Address: netip.MustParseAddr("2001:db8::fe")}},
		FirstPort: 30000, LastPort: 39999}
	if diff := cmp.Diff(pool, got.FullNAT, compare); diff != "" {
		t.Errorf("fullnat (-want +got):\n%s", diff)
	}
	for i, s := range got.Services {
		if s.Mode != lb.PacketModes[i] || (s.DSCP != 0) != (s.Mode == lb.DSCP) ||
			(s.MSS == 1400) != (s.Mode == lb.IPIP) {
			t.Errorf("service %s has mode %s, DSCP %d, MSS %d", s.Name, s.Mode, s.DSCP, s.MSS)
		}
	}
	if len(got.Warnings) > 0 {
		t.Errorf("warnings: %v", got.Warnings)
	}
}

// line is a service of one backend on one line; more are further fields.
func line(name, vip string, port int, more string) string {
	backend := "192.0.2.1"
	if strings.Contains(vip, ":") {
		backend, vip = "2001:db8::1", `"`+vip+`"`
	}
	return fmt.Sprintf("  - {name: %s, vip: %s, port: %d, %s, backends: [{name: a, address: \"%s\"}]}\n", name, vip,
		port, more, backend)
}

// services are the lines of a file from line 3 on.
func services(lines ...string) string {
	return "interface: eth0\nservices:\n" + strings.Join(lines, "")
}

func TestDSCPValues(t *testing.T) {
	cfg, err := Parse("f", []byte(services(
		line("a", "192.0.2.101", 1, "mode: dscp"),
		line("b", "192.0.2.102", 1, "mode: dscp"),
		line("c", "192.0.2.101", 2, "mode: dscp"),
		line("d", "192.0.2.103", 1, "mode: dscp"),
		line("e", "192.0.2.103", 2, "mode: dscp, dscp: 1"),
		line("f", "192.0.2.104", 2, "mode: dscp, dscp: 63"),
		line("g", "192.0.2.105", 2, "mode: l2dsr"),
		line("h", "192.0.2.101", 3, "mode: ipip"),
		line("i", "2001:db8::100", 3, "mode: dscp"),
	)))
	if err != nil {
		t.Fatal(err)
	}
	var got []uint8
	for _, s := range cfg.Services {
		got = append(got, s.DSCP)
	}
	if diff := cmp.Diff([]uint8{2, 3, 2, 1, 1, 63, 0, 0, 4}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// manyVIPs has n VIPs of mode dscp.
func manyVIPs(n int) string {
	var lines []string
	for i := range n {
		lines = append(lines, line(fmt.Sprintf("s%d", i), fmt.Sprintf("198.18.0.%d", i+1), 80, "mode: dscp"))
	}
	return services(lines...)
}

func TestManyDSCPValues(t *testing.T) {
	cfg, err := Parse("f", []byte(manyVIPs(63)))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint8]bool{}
	for _, s := range cfg.Services {
		seen[s.DSCP] = true
	}
	if len(seen) != 63 || seen[0] || seen[64] {
		t.Errorf("values %v, want 1 to 63", seen)
	}
}

func TestModeProblems(t *testing.T) {
	pool := func(lines ...string) string {
		return "interface: eth0\nfullnat: {" + strings.Join(lines, ", ") + "}\nservices:\n" +
			line("a", "192.0.2.100", 80, "mode: fullnat")
	}
	const four = "addresses: [192.0.2.9]"
	divided := dividedPool
	tests := map[string]struct {
		file string
		want []string
	}{
		// Interfaces.
		"both": {"interfaces: [eth1]\n" + services(line("a", "192.0.2.100", 80, "mode: nat")), []string{
			"f:1: interfaces: written beside interface; keep one of the two"}},
		"interface twice": {"interfaces: [eth0, eth1, eth0]\n" +
			strings.TrimPrefix(services(line("a", "192.0.2.100", 80, "mode: nat")), "interface: eth0\n"), []string{
			"f:1: interfaces[2]: eth0 is already interfaces[0] (line 1); name each interface once"}},
		"many interfaces": {"interfaces: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]\n" +
			strings.TrimPrefix(services(line("a", "192.0.2.100", 80, "mode: nat")), "interface: eth0\n"), []string{
			"f:1: interfaces: 17 are more than the 16 that a balancer can have; split the services between two"}},
		"no interfaces": {"interfaces: []\n" + strings.TrimPrefix(services(line("a", "192.0.2.100", 80, "mode: nat")),
			"interface: eth0\n"), []string{
			"f:1: interfaces: empty; name at least one interface"}},
		"bad interface": {"interfaces: [a/b]\n" +
			strings.TrimPrefix(services(line("a", "192.0.2.100", 80, "mode: nat")), "interface: eth0\n"), []string{
			"f:1: interfaces[0]: \"a/b\" cannot be the name of an interface; write it as `ip link` shows it"}},

		// DSCP.
		"dscp 0": {services(line("a", "192.0.2.100", 80, "mode: dscp, dscp: 0")),
			[]string{`f:3: services[0].dscp: "0" is not a whole number from 1 to 63`}},
		"dscp 64": {services(line("a", "192.0.2.100", 80, "mode: dscp, dscp: 64")),
			[]string{`f:3: services[0].dscp: "64" is not a whole number from 1 to 63`}},
		"dscp word": {services(line("a", "192.0.2.100", 80, "mode: dscp, dscp: ef")),
			[]string{`f:3: services[0].dscp: "ef" is not a whole number from 1 to 63`}},
		"dscp in another mode": {services(line("a", "192.0.2.100", 80, "mode: gue, dscp: 7")), []string{
			"f:3: services[0].dscp: only the mode dscp has one, and this service has gue; remove the line"}},
		"dscp taken": {services(line("a", "192.0.2.100", 80, "mode: dscp, dscp: 7"),
			line("b", "192.0.2.101", 80, "mode: dscp, dscp: 7")), []string{
			"f:4: services[1].dscp: 7 already stands for another VIP in services[0].dscp (line 3); give each VIP its own"}},
		"dscp two of a VIP": {services(line("a", "192.0.2.100", 80, "mode: dscp, dscp: 7"),
			line("b", "192.0.2.100", 81, "mode: dscp, dscp: 8")), []string{
			"f:4: services[1].dscp: 8, and 192.0.2.100 has 7 in services[0].dscp (line 3); a VIP has one value for all its services"}},
		"no dscp left": {manyVIPs(65), []string{
			"f:66: services[63].vip: no DSCP value is left for 198.18.0.64: all 63 stand for other VIPs; use another mode for it, such as gue",
			"f:67: services[64].vip: no DSCP value is left for 198.18.0.65: all 63 stand for other VIPs; use another mode for it, such as gue"}},

		// MSS.
		"mss low": {services(line("a", "192.0.2.100", 80, "mss: 535")),
			[]string{`f:3: services[0].mss: "535" is not a whole number from 536 to 65495`}},
		"mss high": {services(line("a", "192.0.2.100", 80, "mss: 65496")),
			[]string{`f:3: services[0].mss: "65496" is not a whole number from 536 to 65495`}},
		"mss udp": {services(line("a", "192.0.2.100", 53, "mss: 1400, protocol: udp")),
			[]string{"f:3: services[0].mss: only TCP has one, and this service is udp; remove the line"}},

		// NAT.
		"nat endpoint twice": {services(line("a", "192.0.2.100", 80, "mode: nat"),
			line("b", "192.0.2.101", 80, "mode: nat")), []string{
			"f:4: services[1].backends[0].address: tcp 192.0.2.1:80 is already services[0].backends[0].address (line 3), and with nat its replies would be ambiguous; use fullnat for one of the services, or another port"}},
		"nat backend twice": {services(
			"  - {name: a, vip: 192.0.2.100, port: 80, mode: nat, backends: [{name: a, address: 192.0.2.1, port: 8}, {name: b, address: 192.0.2.1, port: 8}]}"), []string{
			"f:3: services[0].backends[1].address: 192.0.2.1 is already services[0].backends[0].address (line 3); a backend stands once in a service, give it a weight instead"}},
		"nat family": {services(
			"  - {name: a, vip: 192.0.2.100, port: 80, mode: nat, backends: [{name: a, address: \"2001:db8::1\"}]}"),
			[]string{
				"f:3: services[0].backends[0].address: 2001:db8::1 is IPv6 and the VIP 192.0.2.100 is IPv4, which only the modes ipip, gue and proxy can cross; make a second service for the other family"}},

		// Exceptions.
		"untranslated in another mode": {services(line("a", "192.0.2.100", 80,
			"mode: gue, untranslated: [198.51.100.0/24]")), []string{
			"f:3: services[0].untranslated: only the mode nat takes whatever its backends send from their ports for replies, and this service has gue; remove the line"}},
		"hairpin in another mode": {services(line("a", "192.0.2.100", 80, "mode: l2dsr, hairpin: true")), []string{
			"f:3: services[0].hairpin: only the mode nat needs it, and this service has l2dsr; remove the line"}},
		"untranslated of the other family": {services(line("a", "192.0.2.100", 80,
			"mode: nat, untranslated: [198.51.100.0/24, \"2001:db8::/32\"]")), []string{
			"f:3: services[0].untranslated[1]: 2001:db8::/32 is IPv6, and the VIP 192.0.2.100 is IPv4: name it under the service of that family"}},
		"untranslated address": {services(line("a", "192.0.2.100", 80, "mode: nat, untranslated: [198.51.100.7]")),
			[]string{
				`f:3: services[0].untranslated[0]: "198.51.100.7" is an address; write the network, or for this host alone 198.51.100.7/32`}},
		"untranslated words": {services(line("a", "192.0.2.100", 80, "mode: nat, untranslated: [all]")), []string{
			`f:3: services[0].untranslated[0]: "all" is not a network; write one such as 192.0.2.0/24 or 2001:db8::/32`}},
		"untranslated host bits": {services(line("a", "192.0.2.100", 80, "mode: nat, untranslated: [198.51.100.7/24]")),
			[]string{
				`f:3: services[0].untranslated[0]: "198.51.100.7/24" has bits beyond its length; write 198.51.100.0/24`}},
		"untranslated twice": {services(line("a", "192.0.2.100", 80,
			"mode: nat, untranslated: [198.51.100.0/24, 198.51.100.0/24]")), []string{
			"f:3: services[0].untranslated[1]: 198.51.100.0/24 is already services[0].untranslated[0] (line 3); name each network once"}},
		"untranslated nothing": {services(line("a", "192.0.2.100", 80, "mode: nat, untranslated: []")), []string{
			"f:3: services[0].untranslated: empty; name a network, or remove the line"}},

		// Clients.
		"clients of the other family": {services(line("a", "192.0.2.100", 80,
			"allow: [\"2001:db8::/32\"], deny: [\"2001:db8:1::/48\"]")), []string{
			"f:3: services[0].allow[0]: 2001:db8::/32 is IPv6, and the VIP 192.0.2.100 is IPv4: name it under the service of that family",
			"f:3: services[0].deny[0]: 2001:db8:1::/48 is IPv6, and the VIP 192.0.2.100 is IPv4: name it under the service of that family"}},
		"clients allowed and denied": {services(line("a", "192.0.2.100", 80,
			"allow: [10.0.0.0/8, 10.1.0.0/16], deny: [10.2.0.0/16, 10.1.0.0/16]")), []string{
			"f:3: services[0].deny[1]: 10.1.0.0/16 is allowed too, by services[0].allow[1] (line 3); remove one of the two lines"}},
		"a client denied twice": {services(line("a", "192.0.2.100", 80, "deny: [10.2.0.0/16, 10.2.0.0/16]")), []string{
			"f:3: services[0].deny[1]: 10.2.0.0/16 is already services[0].deny[0] (line 3); name each network once"}},
		"no client allowed": {services(line("a", "192.0.2.100", 80, "allow: []")), []string{
			"f:3: services[0].allow: empty; name a network, or remove the line"}},

		// Full NAT.
		"no pool": {services(line("a", "192.0.2.100", 80, "mode: fullnat"),
			line("b", "2001:db8::100", 80, "mode: fullnat"), line("c", "192.0.2.101", 80, "mode: fullnat")), []string{
			"f:3: services[0].mode: fullnat needs an IPv4 address to send from; add `fullnat: {addresses: [ADDRESS]}` to the file, with one of the balancer's own",
			"f:4: services[1].mode: fullnat needs an IPv6 address to send from; add `fullnat: {addresses: [ADDRESS]}` to the file, with one of the balancer's own"}},
		"pool of the other family": {pool(`addresses: ["2001:db8::9"]`), []string{
			"f:4: services[0].mode: fullnat needs an IPv4 address to send from; add `fullnat: {addresses: [ADDRESS]}` to the file, with one of the balancer's own"}},
		"pool empty": {pool("addresses: []"),
			[]string{"f:2: fullnat.addresses: empty; name an address of the balancer's own, of the services' family"}},
		"pool missing": {pool("ports: 20000-30000"), []string{"f:2: fullnat.addresses: missing; add it"}},
		"pool is no address": {pool("addresses: [x]"),
			[]string{`f:2: fullnat.addresses[0].address: "x" is not an IP address; write one such as 192.0.2.1 or 2001:db8::1`}},
		"pool twice": {pool("addresses: [192.0.2.9, 192.0.2.9]"),
			[]string{"f:2: fullnat.addresses[1].address: 192.0.2.9 is already fullnat.addresses[0].address (line 2); name each address once"}},
		"pool is a VIP": {pool("addresses: [192.0.2.100]"), []string{
			"f:2: fullnat.addresses[0].address: 192.0.2.100 is the VIP of services[0].vip (line 4); use another address of the balancer"}},
		"pool is a backend": {pool("addresses: [192.0.2.1]"), []string{
			"f:2: fullnat.addresses[0].address: 192.0.2.1 is the backend services[0].backends[0].address (line 4); use an address of the balancer"}},
		"pool without members": {pool("addresses: [{address: 192.0.2.9, member: 192.0.2.10}]"), []string{
			"f:2: fullnat.addresses[0].member: the file has no members; add members, or leave this balancer's own addresses and remove member"}},
		"pool of a stranger": {divided("", "{address: 192.0.2.9, member: 192.0.2.10}",
			"{address: 192.0.2.8, member: 192.0.2.19}"), []string{
			"f:3: fullnat.addresses[1].member: 192.0.2.19 is no member; write an address of members.peers, or this balancer's own, 192.0.2.10 (members.listen)"}},
		"pool of others": {divided("", "{address: 192.0.2.9, member: 192.0.2.11}",
			`{address: "2001:db8::9", member: 192.0.2.10}`), []string{
			"f:5: services[0].mode: fullnat needs an IPv4 address to send from, and all of them in fullnat.addresses are other members'; add one with `member: 192.0.2.10`, this balancer's own (members.listen)"}},
		"pool divided in part": {divided("", "{address: 192.0.2.9, member: 192.0.2.10}", "192.0.2.8"), []string{
			"f:3: fullnat.addresses[1]: has no member, and fullnat.addresses[0] (line 3) has one; say for each address which member's it is"}},
		"pool that is not handed over": {divided(", hand_over: false", "{address: 192.0.2.9, member: 192.0.2.10}"),
			[]string{
				"f:3: fullnat.addresses[0].member: members hand no flows over (members.hand_over), so no other balancer has any use for the address; leave this balancer's own addresses and remove member, or remove hand_over"}},
		"pool twice among members": {divided("", "{address: 192.0.2.9, member: 192.0.2.10}",
			"{address: 192.0.2.9, member: 192.0.2.11}"), []string{
			"f:3: fullnat.addresses[1].address: 192.0.2.9 is already fullnat.addresses[0].address (line 3); name each address once"}},
		"pool of no address": {divided("", "{address: 192.0.2.9, member: lb1}"), []string{
			`f:3: fullnat.addresses[0].member: "lb1" is not an IP address; write one such as 192.0.2.1 or 2001:db8::1`}},
		"ports": {pool(four, "ports: many"),
			[]string{`f:2: fullnat.ports: "many" is not a range of ports; write one such as 20000-59999`}},
		"ports high": {pool(four, "ports: 60000-65536"),
			[]string{`f:2: fullnat.ports: "60000-65536" is not a range of ports; write one such as 20000-59999`}},
		"ports open": {pool(four, "ports: 20000-"),
			[]string{`f:2: fullnat.ports: "20000-" is not a range of ports; write one such as 20000-59999`}},
		"ports backward": {pool(four, "ports: 30000-20000"),
			[]string{`f:2: fullnat.ports: "30000-20000" begins after it ends; write 20000-30000`}},
		"ports low": {pool(four, "ports: 1000-30000"),
			[]string{`f:2: fullnat.ports: "1000-30000" has ports below 1024, which are for services; write one such as 20000-59999`}},
		"ports few": {pool(four, "ports: 20000-20062"),
			[]string{`f:2: fullnat.ports: "20000-20062" is 63 ports, and a backend has at most that many connections from each address; use at least 64`}},
		"flows": {pool(four, "flows: 4096"),
			[]string{"f:2: fullnat.flows: flows are bounded by flows.limit now, those of all services together: write it there"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f", []byte(test.file))
			if err == nil {
				t.Fatalf("no error for:\n%s", test.file)
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s\nof:\n%s", diff, test.file)
			}
		})
	}
}

// TestModesThatFit: configurations that look like refused ones, and are right.
func TestModesThatFit(t *testing.T) {
	tests := map[string]string{
		"nat endpoint of another protocol": services(line("a", "192.0.2.100", 53, "mode: nat"),
			line("b", "192.0.2.100", 53, "mode: nat, protocol: udp")),
		"nat beside another mode": services(line("a", "192.0.2.100", 80, "mode: nat"),
			line("b", "192.0.2.101", 80, "mode: gue")),
		"tunnels cross families": services(
			"  - {name: a, vip: 192.0.2.100, port: 80, mode: ipip, backends: [{name: a, address: \"2001:db8::1\"}]}\n",
			"  - {name: b, vip: \"2001:db8::100\", port: 80, mode: gue, backends: [{name: a, address: 192.0.2.1}]}\n"),
		"other port": services(
			"  - {name: a, vip: 192.0.2.100, port: 80, mode: nat, backends: [{name: a, address: 192.0.2.1, port: 8080}]}\n"),
		"same dscp of a VIP": services(line("a", "192.0.2.100", 80, "mode: dscp, dscp: 7"),
			line("b", "192.0.2.100", 81, "mode: dscp, dscp: 7")),
	}
	for name, file := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse("f", []byte(file)); err != nil {
				t.Error(err)
			}
		})
	}
}

// dividedPool is a file of a balancer with members, 192.0.2.10, whose pool has these addresses.
func dividedPool(more string, addresses ...string) string {
	return "interface: eth0\nmembers: {listen: \"192.0.2.10:7946\", peers: [192.0.2.10, 192.0.2.11], key_file: /k" +
		more + "}\n" +
		"fullnat: {addresses: [" + strings.Join(addresses, ", ") + "]}\nservices:\n" +
		line("a", "192.0.2.100", 80, "mode: fullnat")
}

// TestPoolOfMembers: this balancer gives out ports of the addresses that are its own, and knows the others.
func TestPoolOfMembers(t *testing.T) {
	cfg, err := Parse("f",
		[]byte(dividedPool("", "{address: 192.0.2.8, member: 192.0.2.11}", "{address: 192.0.2.9, member: 192.0.2.10}")))
	if err != nil {
		t.Fatal(err)
	}
	want := lb.Pool{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9")},
		Others: []netip.Addr{netip.MustParseAddr("192.0.2.8")}, FirstPort: DefaultFirstPort, LastPort: DefaultLastPort}
	if diff := cmp.Diff(want, cfg.Pool(), compare); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
}

func TestUnusedPool(t *testing.T) {
	cfg, err := Parse("f",
		[]byte("fullnat: {addresses: [192.0.2.9]}\n"+services(line("a", "192.0.2.100", 80, "mode: nat"))))
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.FullNAT.Addresses) > 0 || len(cfg.Warnings) != 1 ||
		cfg.Warnings[0].String() != "f:1: fullnat: no service has the mode fullnat, so nothing of this is used" {
		t.Errorf("addresses %v, warnings %v", cfg.FullNAT.Addresses, cfg.Warnings)
	}
}
