// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const bgpServices = `
interface: eth0
services:
  - {name: web, vip: 192.0.2.100, port: 80, announce_minimum: 2, backends: [{name: a, address: 192.0.2.21}, {name: b, address: 192.0.2.22}]}
  - {name: off, vip: 192.0.2.101, port: 80, announce: false, backends: [{name: a, address: 192.0.2.21}]}
`

func TestBGP(t *testing.T) {
	cfg, err := Parse("f",
		[]byte("bgp:\n  asn: 64512\n  router_id: 192.0.2.10\n  peers:\n    - {address: 192.0.2.1, asn: 64513, bfd: {interval: 50ms}}\n    - {address: 'fe80::1', bfd: true, interface: eth0, asn: 64512, communities: [no-export, '0064512:1'], local_preference: 1}\n"+bgpServices))
	if err != nil {
		t.Fatal(err)
	}
	p := cfg.BGP.Peers
	if b := cfg.BGP; b.ASN != 64512 || b.DrainPause != lb.DefaultDrainPause || len(p) != 2 {
		t.Fatalf("BGP is %+v", b)
	}
	if p[0].HoldTime != 9*time.Second || p[0].Port != 179 || !p[0].GracefulRestart || p[0].Name() != "192.0.2.1" ||
		p[0].Announces()[0] != lb.IPv4 {
		t.Errorf("the first peer is %+v", p[0])
	}
	if p[0].BFD != (lb.BFD{On: true, Interval: 50 * time.Millisecond, Multiplier: 3}) ||
		p[1].BFD != (lb.BFD{On: true, Interval: 300 * time.Millisecond, Multiplier: 3}) {
		t.Errorf("BFD is %+v and %+v", p[0].BFD, p[1].BFD)
	}
	if p[1].Name() != "fe80::1%eth0" || p[1].Communities[0] != "65535:65281" || p[1].Communities[1] != "64512:1" ||
		p[1].LocalPreference == nil || *p[1].LocalPreference != 1 {
		t.Errorf("the second peer is %+v", p[1])
	}
	if s := cfg.Services; s[0].Announcement != (lb.Announcement{Minimum: 2}) ||
		s[1].Announcement != (lb.Announcement{Never: true}) {
		t.Errorf("services announce %+v and %+v", s[0].Announcement, s[1].Announcement)
	}
	without, err := Parse("f", []byte(bgpServices))
	if err != nil || without.BGP.ASN != 0 || len(without.BGP.Peers) != 0 {
		t.Errorf("without bgp: %+v, %v", without, err)
	}
}

// TestLocalSpeaker: a daemon of the host has the sessions, and all that is of them is refused.
func TestLocalSpeaker(t *testing.T) {
	for _, test := range []struct{ bgp, says string }{
		{"speaker: local", ""},
		{"speaker: local, drain_pause: 1s, table: 254", ""},
		{"speaker: local, asn: 64512",
			"f:1: bgp.asn: with speaker: local, the routing daemon of this host has the sessions with routers"},
		{"speaker: local, router_id: 192.0.2.10", "bgp.router_id: with speaker: local"},
		{"speaker: local, peers: [{address: 192.0.2.1, asn: 64513}]", "bgp.peers: with speaker: local"},
		{"speaker: local, table: 255", "bgp.table: \"255\" is no table for VIPs"},
		{"speaker: bird", "bgp.speaker: unknown speaker of BGP \"bird\": write local"},
		{"asn: 64512, router_id: 192.0.2.10, table: 9, peers: [{address: 192.0.2.1, asn: 64513}]",
			"bgp.table: routes are put into a table for a daemon of this host only; add speaker: local"},
		{"table: 9", "bgp.asn"},
	} {
		cfg, err := Parse("f", []byte("bgp: {"+test.bgp+"}"+bgpServices))
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: the error is %v, and should say %q", test.bgp, err, test.says)
			}
			continue
		}
		if err != nil || !cfg.BGP.On() || cfg.BGP.Speaker != lb.SpeakerLocal ||
			cfg.BGP.Table != map[bool]uint32{true: 254,
				false: lb.DefaultRouteTable}[strings.Contains(test.bgp, "254")] {
			t.Errorf("%s: %+v, %v", test.bgp, cfg, err)
			continue
		}
		checkRoundTrip(t, cfg)
	}
}

// TestWithoutSecrets: a configuration that is shown has no secret, the one in force keeps it, and a shown one is
// refused as a configuration.
func TestWithoutSecrets(t *testing.T) {
	cfg, err := Load(everyKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Write(WithoutSecrets(cfg))
	if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), "password: "+Hidden) ||
		!strings.Contains(string(text), "password_file: /etc/jeoul/bgp.password") {
		t.Errorf("what is shown has the password, or not what stands for it (%v):\n%s", err, text)
	}
	if cfg.BGP.Peers[0].Password != "secret" {
		t.Errorf("the configuration itself has the password %q", cfg.BGP.Peers[0].Password)
	}
	if _, err := Parse("f", text); err == nil ||
		!strings.Contains(err.Error(), "bgp.peers[0].password: \"(hidden)\" stands for a password") {
		t.Errorf("what was shown is read: %v", err)
	}
}

func TestBGPProblems(t *testing.T) {
	for _, test := range []struct{ peer, says string }{
		{"address: 192.0.2.100, asn: 64513", "f:5: bgp.peers[0].address: 192.0.2.100 is the VIP"},
		{"address: 'fe80::1', asn: 64513", "is link-local, which is an address on a link; add interface"},
		{"address: 'fe80::1%eth0', asn: 64513", "write the address fe80::1, and interface: eth0"},
		{"address: 192.0.2.1, asn: 0", "bgp.peers[0].asn: \"0\" is no AS number"},
		{"address: 192.0.2.1, asn: 23456", "is no AS number"},
		{"address: 192.0.2.1", "bgp.peers[0].asn"},
		{"address: 192.0.2.1, asn: 64513, hold_time: 2s", "bgp.peers[0].hold_time"},
		{"address: 192.0.2.1, asn: 64513, hold_time: 3500ms", "no whole number of seconds; write 3s"},
		{"address: 192.0.2.1, asn: 64513, bfd: true, multihop: 2",
			"BFD is with neighbours, and the router may be 2 hops away"},
		{"address: 192.0.2.1, asn: 64513, bfd: {interval: 1ms}", "bgp.peers[0].bfd.interval"},
		{"address: 192.0.2.1, asn: 64513, bfd: {multiplier: 0}", "bgp.peers[0].bfd.multiplier"},
		{"address: 192.0.2.1, asn: 64513, password: x, password_file: /x", "password_file says it too"},
		{"address: 192.0.2.1, asn: 64513, password: (hidden)", "stands for a password where a configuration is shown"},
		{"address: 192.0.2.1, asn: 64513, local_address: '2001:db8::1'", "of another family than the router's"},
		{"address: 192.0.2.1, asn: 64513, local_address: 192.0.2.100", "this host does not send from"},
		{"address: 192.0.2.1, asn: 64512, prepend: 1", "paths have no AS within AS 64512"},
		{"address: 192.0.2.1, asn: 64513, local_preference: 1", "holds within AS 64512 only"},
		{"address: 192.0.2.1, asn: 64513, families: [ipv4, ipv6]", "IPv6 VIPs need an IPv6 next hop"},
		{"address: 192.0.2.1, asn: 64513, next_hop: [192.0.2.2, 192.0.2.3]", "two addresses of a family"},
		{"address: 192.0.2.1, asn: 64513, communities: ['70000:1']", "is no community"},
		{"address: 192.0.2.1, asn: 64513, communities: ['1:2:3:4']", "is no community"},
		{"address: 192.0.2.1, asn: 64513}\n    - {address: 192.0.2.1, asn: 64514", "a session is there once"},
		{"address: 'fe80::1', interface: eth0, asn: 64513, med: 1}\n    - {address: 'fe80::1', interface: eth1, asn: 64513", "their routes would differ"},
	} {
		_, err := Parse("f", []byte("bgp:\n  asn: 64512\n  router_id: 192.0.2.10\n  peers:\n    - {"+test.peer+"}\n"+
			bgpServices))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: the error is %v, and should say %q", test.peer, err, test.says)
		}
	}
	_, err := Parse("f", []byte(strings.Replace(bgpServices, "announce_minimum: 2", "announce_minimum: 3", 1)))
	if err == nil || !strings.Contains(err.Error(), "services[0].announce_minimum: 3 is more than the 2 backends") {
		t.Errorf("a minimum that cannot be reached: %v", err)
	}
}
