// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmpopts.IgnoreUnexported(Config{}),
}

func TestParse(t *testing.T) {
	got, err := Parse("web.yaml", []byte(`
interface: eth1
hook: tc
socket: /tmp/x//jeoul.sock
table_size: 4099
services:
  - name: web
    vip: 192.0.2.100
    backends:
      - {name: web01, address: 192.0.2.1}
      - {name: web02, address: 192.0.2.2, port: 80, weight: 0}
    port: 80
  - name: 도메인
    vip: 2001:db8::100
    port: 53
    protocol: udp
    mode: l2dsr
    scheduler: rr
    backends:
      - {name: 1, address: "2001:db8::1"}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		File: "web.yaml", Interfaces: []string{"eth1"}, Hook: lb.HookTC, Socket: "/tmp/x/jeoul.sock",
		Survive: SurviveAuto, Orphan: time.Hour, TableSize: 4099, Metrics: Metrics{Backends: 5000},
		Flows: Flows{Unproven: 262144, Timeouts: lb.Timeouts{Opening: 30 * time.Second, First: 30 * time.Second,
			Established: 124 * time.Minute, UDP: 2 * time.Minute, Fin: 4 * time.Minute, Closed: time.Minute}},
		Transition: Transition{TCP: 15 * time.Minute, UDP: 30 * time.Second},
		FullNAT:    FullNAT{FirstPort: 20000, LastPort: 59999},
		Services: []lb.Service{{
			Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80,
			Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: lb.Maglev,
			TableSize: 4099, Transition: lb.Transition{Window: 15 * time.Minute},
			Limits: lb.Limits{Refuse: lb.RefuseByDrop},
			Backends: []lb.Backend{
				{Name: "web01", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 1},
				{Name: "web02", Address: netip.MustParseAddr("192.0.2.2"), Port: 80, Weight: 0},
			},
		}, {
			Name: "도메인", VIP: netip.MustParseAddr("2001:db8::100"), Port: 53,
			Protocol: lb.UDP, Mode: lb.L2DSR, Scheduler: lb.RoundRobin,
			TableSize: 4099, Transition: lb.Transition{Window: 30 * time.Second},
			Limits:   lb.Limits{Refuse: lb.RefuseByDrop},
			Backends: []lb.Backend{{Name: "1", Address: netip.MustParseAddr("2001:db8::1"), Port: 53, Weight: 1}},
		}},
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	got, err := Parse("x",
		[]byte("interface: eth0\nservices: [{name: a, vip: 192.0.2.9, port: 1, backends: [{name: b, address: 192.0.2.1}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Hook != lb.HookAuto || got.Socket != DefaultSocket || got.TableSize != 0 {
		t.Errorf("hook %s, socket %s, table size %d", got.Hook, got.Socket, got.TableSize)
	}
}

// service wraps the lines of one service, its backends included, in a file; the
// first of them is line 3.
func service(lines ...string) string {
	return "interface: eth0\nservices:\n  - " + strings.Join(lines, "\n    ") + "\n"
}

// head are the fields of a good service without backends: lines 3 to 5.
var head = []string{"name: web", "vip: 192.0.2.100", "port: 80"}

// good are the fields of head and a good backend, lines 6 and 7.
var good = append(head[:3:3], "backends:", "  - {name: web01, address: 192.0.2.1}")

func with(base []string, more ...string) string {
	return service(append(base[:len(base):len(base)], more...)...)
}

// apiOver are the keys that api needs.
const apiOver = "listen: '127.0.0.1:9540', certificate: /c, key: /k"

func TestProblems(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		// The file as a whole.
		"empty":    {"", []string{"f: the file is empty; it needs at least interface and services"}},
		"comments": {"# nothing\n", []string{"f: the file is empty; it needs at least interface and services"}},
		"null":     {"---\n", []string{"f: the file is empty; it needs at least interface and services"}},
		"list":     {"- a\n", []string{"f:1: must be a mapping (key: value)"}},
		"word":     {"hello", []string{"f:1: must be a mapping (key: value)"}},
		"two": {with(good) + "---\na: b\n",
			[]string{"f:8: a second YAML document starts here; keep one in a file"}},
		"syntax": {"interface: eth0\nservices: [\n",
			[]string{"f:2: not YAML: did not find expected node content"}},
		"tab": {"interface: eth0\n\tservices: x\n",
			[]string{"f:2: not YAML: found a tab character that violates indentation"}},
		"control": {"a: \x01", []string{"f: not YAML: control characters are not allowed"}},
		"large": {strings.Repeat("#", MaxBytes+1),
			[]string{"f: larger than 32 MiB; this is hardly a configuration"}},
		"no such key": {"x: 1\n" + with(good),
			[]string{"f:1: x: unknown key; use one of interface, interfaces, hook, socket, metrics, api, survive, orphan, table_size, flows, transition, fullnat, local, proxy, bgp, vrrp, members, services"}},

		// Clients on the host itself.
		"local a word": {with(good) + "local: maybe\n", []string{`f:8: local: "maybe" is neither true nor false`}},
		"local a list": {with(good) + "local: [true]\n", []string{"f:8: local: must be a mapping (key: value)"}},
		"local empty": {with(good) + "local:\n",
			[]string{"f:8: local: has no value; give it one or remove the key"}},
		"local relative": {with(good) + "local: {cgroup: user.slice}\n",
			[]string{`f:8: local.cgroup: "user.slice" is not an absolute path; write one such as /etc/ssl/ca.pem`}},
		"local of another": {with(good) + "local: {group: /a}\n",
			[]string{"f:8: local.group: unknown key; did you mean cgroup?"}},
		"local, two families": {"local: true\n" + service("name: web", "vip: 192.0.2.100", "port: 80", "mode: ipip",
			"backends:", "  - {name: web01, address: '2001:db8::1'}"),
			[]string{"f:9: services[0].backends[0].address: 2001:db8::1 is of another family than the VIP 192.0.2.100, and a socket that a client on this host (local) has opened to the one cannot reach the other; use an address of the VIP's family, or remove local"}},

		// The API over TCP.
		"api alone": {with(good) + "api: {}\n",
			[]string{"f:8: api.listen: missing; add it", "f:8: api.certificate: missing; add it",
				"f:8: api.key: missing; add it",
				"f:8: api: no client could use it: add tokens, or client_ca and clients"}},
		"api without clients": {with(good) + "api: {" + apiOver + ", client_ca: /ca}\n",
			[]string{"f:8: api.client_ca: vouches for clients, and without clients none of them may do anything; add clients, such as {subject: OU=operators, role: operate}"}},
		"api without ca": {with(good) + "api: {" + apiOver +
			", tokens: /t, clients: [{subject: CN=a, role: read}]}\n",
			[]string{"f:8: api.clients: says what clients with a certificate may do, and without client_ca none is accepted; add client_ca or remove clients"}},
		"api, role, attribute": {with(good) + "api: {" + apiOver +
			", client_ca: /ca, clients: [{subject: O=a, role: root}]}\n",
			[]string{`f:8: api.clients[0].subject: "O=a" is not one attribute of a subject; write its common name as CN=ci, or an organizational unit as OU=operators`, `f:8: api.clients[0].role: unknown role "root": use read, operate or configure`}},

		// Keys.
		"missing": {"hook: xdp", []string{
			"f:1: interface: missing; add it", "f:1: services: missing; add it"}},
		"missing in a service": {service("hook: xdp"), []string{
			"f:3: services[0].hook: unknown key; use one of name, vip, port, protocol, mode, dscp, mss, untranslated, hairpin, allow, deny, scheduler, hash, table_size, persistence, limits, check, checks, require, panic, on_down, outliers, slow_start, on_empty, proxy, announce, announce_minimum, discover, allow_empty, backends",
			"f:3: services[0].name: missing; add it", "f:3: services[0].vip: missing; add it",
			"f:3: services[0].port: missing; add it", "f:3: services[0].backends: missing; add it"}},
		"near key": {with(good, "sheduler: rr"),
			[]string{"f:8: services[0].sheduler: unknown key; did you mean scheduler?"}},
		"case": {"Interface: eth0\n", []string{"f:1: Interface: unknown key; did you mean interface?",
			"f:1: interface: missing; add it", "f:1: services: missing; add it"}},
		"duplicate key": {with(good, "port: 81"), []string{
			"f:8: services[0].port: written twice, first at line 5; keep one"}},
		"no value": {"interface:\n" + service(good...)[len("interface: eth0\n"):],
			[]string{"f:1: interface: has no value; give it one or remove the key"}},
		"key a list": {"? [a]\n: b\n" + with(good),
			[]string{"f:1: a key must be a word; use one of interface, interfaces, hook, socket, metrics, api, survive, orphan, table_size, flows, transition, fullnat, local, proxy, bgp, vrrp, members, services"}},
		"odd key": {"\"wa\\nb\": 1\n" + with(good),
			[]string{`f:1: "wa\nb": unknown key; use one of interface, interfaces, hook, socket, metrics, api, survive, orphan, table_size, flows, transition, fullnat, local, proxy, bgp, vrrp, members, services`}},
		"alias": {"interface: &a eth0\nsocket: *a\n" + service(good...)[len("interface: eth0\n"):], []string{
			"f:2: socket: anchors, aliases and merge keys are not supported; write the values out"}},
		"merge": {with(append(good[:4:4], "  - &b {name: web01, address: 192.0.2.1}", "  - <<: *b", "    name: web02")),
			[]string{
				"f:8: services[0].backends[1].<<: anchors, aliases and merge keys are not supported; write the values out",
				"f:8: services[0].backends[1].address: missing; add it"}},
		"scalar for mapping": {"interface: eth0\nservices: [web]\n",
			[]string{"f:2: services[0]: must be a mapping (key: value)"}},
		"mapping for list": {"interface: eth0\nservices: {a: b}\n",
			[]string{"f:2: services: must be a list (- item)"}},
		"list for scalar": {"interface: [eth0]\n" + service(good...)[len("interface: eth0\n"):],
			[]string{"f:1: interface: must be a single value"}},
		"no services": {"interface: eth0\n", []string{"f:1: services: missing; add it"}},
		"null services": {"interface: eth0\nservices:\n",
			[]string{"f:2: services: has no value; give it one or remove the key"}},
		"no backends": {with(head, "backends: []"),
			[]string{"f:6: services[0].backends: empty; add at least one backend, or write allow_empty: true beside it"}},

		// Values.
		"interface too long": {"interface: eth0123456789abc\n" + service(good...)[len("interface: eth0\n"):],
			[]string{`f:1: interface: "eth0123456789abc" is longer than the 15 bytes that the kernel allows`}},
		"interface with path": {"interface: ../x\n" + service(good...)[len("interface: eth0\n"):],
			[]string{"f:1: interface: \"../x\" cannot be the name of an interface; write it as `ip link` shows it"}},
		"interface empty": {"interface: \"\"\n" + service(good...)[len("interface: eth0\n"):],
			[]string{"f:1: interface: empty; write the name of the interface that the packets arrive on, as `ip link` shows it"}},
		"hook": {"hook: XDP\n" + with(good),
			[]string{`f:1: hook: unknown hook "XDP": use auto, xdp or tc`}},
		"socket": {"socket: jeoul.sock\n" + with(good),
			[]string{`f:1: socket: "jeoul.sock" is not an absolute path; write one such as /run/jeoul/jeoul.sock`}},
		"socket too long": {"socket: /" + strings.Repeat("a", 107) + "\n" + with(good),
			[]string{"f:1: socket: longer than the 107 bytes that the kernel allows for a unix socket"}},
		"table size": {"table_size: 65536\n" + with(good),
			[]string{"f:1: table_size: maglev table size is not a prime number: 65536; the next prime is 65537"}},
		"table size huge": {"table_size: 99999999\n" + with(good),
			[]string{`f:1: table_size: "99999999" is not a whole number up to 16777216; use a prime such as 65537`}},
		"table size word": {"table_size: big\n" + with(good),
			[]string{`f:1: table_size: "big" is not a whole number up to 16777216; use a prime such as 65537`}},
		"table size small": {"table_size: 2\n" + with(good, "  - {name: web02, address: 192.0.2.2}",
			"  - {name: web03, address: 192.0.2.3}"), []string{
			"f:1: table_size: 2 slots cannot hold the 3 backends of services[0]; use 1021"}},
		"name": {with(append([]string{"name: my web"}, good[1:]...)),
			[]string{`f:3: services[0].name: "my web" holds something else than letters, digits and - _ . :`}},
		"name long": {with(append([]string{"name: " + strings.Repeat("a", 65)}, good[1:]...)),
			[]string{"f:3: services[0].name: longer than 64 characters"}},
		"name none": {with(append([]string{"name: ''"}, good[1:]...)),
			[]string{"f:3: services[0].name: empty; give it a name"}},
		"port 0": {service("name: web", "vip: 192.0.2.100", "port: 0", "backends: [{name: a, address: 192.0.2.1}]"),
			[]string{`f:5: services[0].port: "0" is not a whole number from 1 to 65535`}},
		"port high": {service("name: web", "vip: 192.0.2.100", "port: 65536",
			"backends: [{name: a, address: 192.0.2.1}]"),
			[]string{`f:5: services[0].port: "65536" is not a whole number from 1 to 65535`}},
		"port octal": {service("name: web", "vip: 192.0.2.100", "port: 080",
			"backends: [{name: a, address: 192.0.2.1}]"),
			[]string{`f:5: services[0].port: "080" is not a whole number from 1 to 65535`}},
		"weight": {with(append(good[:4:4], "  - {name: a, address: 192.0.2.1, weight: 65536}")),
			[]string{`f:7: services[0].backends[0].weight: "65536" is not a whole number from 0 to 65535`}},
		"weight -1": {with(append(good[:4:4], "  - {name: a, address: 192.0.2.1, weight: -1}")),
			[]string{`f:7: services[0].backends[0].weight: "-1" is not a whole number from 0 to 65535`}},
		"protocol": {with(good, "protocol: sctp"),
			[]string{`f:8: services[0].protocol: unknown protocol "sctp": use tcp or udp`}},
		"mode": {with(good, "mode: dnat"),
			[]string{`f:8: services[0].mode: unknown mode "dnat": use one of l2dsr, ipip, gue, dscp, nat, fullnat, proxy`}},
		"scheduler": {with(good, "scheduler: lblc"),
			[]string{`f:8: services[0].scheduler: unknown scheduler "lblc": use one of rr, wrr, lc, wlc, sh, maglev, random2, fo`}},

		// Across fields.
		"backend port": {with(append(good[:4:4], "  - {name: a, address: 192.0.2.1, port: 8080}")), []string{
			"f:7: services[0].backends[0].port: 8080 is not the service's port 80, and l2dsr leaves ports as they are; remove the line and let the backend listen on 80, or use nat or fullnat"}},
		"family": {with(append(good[:4:4], "  - {name: a, address: 2001:db8::1}")), []string{
			"f:7: services[0].backends[0].address: 2001:db8::1 is IPv6 and the VIP 192.0.2.100 is IPv4, which only the modes ipip, gue and proxy can cross; make a second service for the other family"}},
		"backend is the vip": {with(append(good[:4:4], "  - {name: a, address: 192.0.2.100}")), []string{
			"f:7: services[0].backends[0].address: 192.0.2.100 is the VIP of services[0].vip (line 4); write the backend's own address"}},
		"backend twice": {with(good, "  - {name: web02, address: 192.0.2.1}"), []string{
			"f:8: services[0].backends[1].address: 192.0.2.1 is already services[0].backends[0].address (line 7); a backend stands once in a service, give it a weight instead"}},
		"backend name twice": {with(good, "  - {name: web01, address: 192.0.2.2}"), []string{
			"f:8: services[0].backends[1].name: web01 is already the name of services[0].backends[0].name (line 7); give each backend of a service its own"}},
		"service twice": {with(good, "")[:len(with(good))] + with(good)[len("interface: eth0\nservices:\n"):], []string{
			"f:8: services[1].name: web is already the name of services[0].name (line 3); give each service its own",
			"f:9: services[1].vip: tcp 192.0.2.100:80 is already taken by services[0].vip (line 4); join the two services or change the vip, port or protocol"}},
		"all weights 0": {with(append(good[:4:4], "  - {name: a, address: 192.0.2.1, weight: 0}")), []string{
			"f:6: services[0].backends: every backend has weight 0, so no backend would take new connections; give one a weight of 1 or more, add another, or remove the service"}},

		// All at once, in the order of the lines.
		"many": {"hook: no\ninterface: eth0\nservices:\n  - name: web\n    vip: x\n    port: 0\n    backends:\n      - {name: a, address: y}\ntable_size: 4\n", []string{
			`f:1: hook: unknown hook "no": use auto, xdp or tc`,
			`f:5: services[0].vip: "x" is not an IP address; write one such as 192.0.2.1 or 2001:db8::1`,
			`f:6: services[0].port: "0" is not a whole number from 1 to 65535`,
			`f:8: services[0].backends[0].address: "y" is not an IP address; write one such as 192.0.2.1 or 2001:db8::1`,
			"f:9: table_size: maglev table size is not a prime number: 4; the next prime is 5"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := Parse("f", []byte(test.file))
			if err == nil {
				t.Fatalf("no error for:\n%s", test.file)
			}
			if cfg != nil {
				t.Error("a configuration came with the error")
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s\nof:\n%s", diff, test.file[:min(len(test.file), 2000)])
			}
			var problems yamlfile.Problems
			if !errors.As(err, &problems) {
				t.Errorf("error is a %T, want yamlfile.Problems", err)
			}
		})
	}
}

func TestBadAddresses(t *testing.T) {
	tests := map[string]string{
		"192.0.2":          "is not an IP address; write one such as 192.0.2.1 or 2001:db8::1",
		"192.0.2.0/24":     "is a prefix; write the address alone, 192.0.2.0",
		"192.0.2.1:80":     "is not an IP address; write one such as 192.0.2.1 or 2001:db8::1",
		"web01":            "is not an IP address; write one such as 192.0.2.1 or 2001:db8::1",
		"fe80::1%eth0":     "has a zone; write fe80::1, the zone is that of the interface",
		"::ffff:192.0.2.1": "is an IPv4-mapped IPv6 address; write 192.0.2.1",
		"0.0.0.0":          "is the unspecified address; write the one that clients or the balancer reach",
		"::":               "is the unspecified address; write the one that clients or the balancer reach",
		"224.0.0.1":        "is a multicast address; use a unicast one",
		"ff02::1":          "is a multicast address; use a unicast one",
		"127.0.0.1":        "is a loopback address, which never leaves its host; use another",
		"::1":              "is a loopback address, which never leaves its host; use another",
		"255.255.255.255":  "is the broadcast address; use a unicast one",
	}
	for address, want := range tests {
		t.Run(address, func(t *testing.T) {
			_, err := Parse("f",
				[]byte(service("name: web", "vip: '"+address+"'", "port: 80",
					"backends: [{name: a, address: 192.0.2.1}]")))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(`f:4: services[0].vip: "`+address+`" `+want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"rr and weights": {with(good, "  - {name: web02, address: 192.0.2.2, weight: 3}", "scheduler: rr"), []string{
			"f:8: services[0].backends[1].weight: differs from the others, but the scheduler rr gives each backend the same share (only 0 counts); use wrr for weights"}},
		"rr and equal weights": {with(append(good[:4:4], "  - {name: a, address: 192.0.2.1, weight: 3}",
			"  - {name: b, address: 192.0.2.2, weight: 0}", "scheduler: rr")), nil},
		"fo and weight_header": {with(good, "check: {type: http, weight_header: X-Weight}", "scheduler: fo"), []string{
			"f:8: services[0].check.weight_header: reports weights, but the scheduler fo goes by the order of the backends (only 0 counts); write them in the order in which they shall serve"}},
		"wrr and weight_header": {with(good, "check: {type: http, weight_header: X-Weight}", "scheduler: wrr"), nil},
		"rr and a node's endpoints": {with(good,
			"check: {type: http, weight_header: X-Load-Balancing-Endpoint-Weight}", "scheduler: rr"), nil},
		"small table": {"table_size: 101\n" + with(good, "  - {name: web02, address: 192.0.2.2}"), []string{
			"f:1: table_size: 101 slots are fewer than 100 for each of the 2 backends of services[0], so their shares are uneven; use a larger prime, such as table_size: 211"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := Parse("f", []byte(test.file))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range cfg.Warnings {
				got = append(got, w.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAt points at fields for checks that come later.
func TestAt(t *testing.T) {
	cfg, err := Parse("f", []byte(with(good, "  - name: web02", "    address: 192.0.2.2")))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]int{
		"interface":                   1,
		"socket":                      1, // left out: the file's first line
		BackendField(0, 0, "address"): 7,
		BackendField(0, 1, "address"): 9,
		BackendField(0, 1, "weight"):  8, // left out: the backend's line
		BackendField(0, 1, ""):        8,
		ServiceField(0, "vip"):        4,
		ServiceField(0, "scheduler"):  3,
	}
	for field, line := range tests {
		got := cfg.At(field, "no %s", "good")
		want := yamlfile.Problem{File: "f", Line: line, Field: field, Message: "no good"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v, want one that names %s and says that it does not exist", err, path)
	}
	if err := os.WriteFile(path, []byte(with(good)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path)
	if err != nil || cfg.File != path || cfg.Services[0].Name != "web" {
		t.Errorf("config %+v, error %v", cfg, err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a directory loaded")
	}
	if _, err := Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Errorf("error = %v, want one about the size", err)
	}
}

// FuzzParse: whatever the file, Parse returns; either problems that each name the file, or a configuration with the
// properties that Parse promises.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		with(good), "a: &a [*a]", "? {}\n: x", "<<: {a: b}", "services: [{backends: [null, {}, [], x]}]",
		"\xef\xbb\xbfinterface: x",
		"table_size: 7\nhook: tc\nsocket: /x\n" + with(good, "scheduler: rr", "mode: l2dsr", "protocol: udp"),
		"--- a\n--- b", "!!binary x: y",
		checked(`checks: [tcp, {type: http, status: [200, 301-302], body: ok, tls: {verify: true}}, {type: udp, port: 9, send: '\x00'}]`, "require: any", "panic: 0%"),
		sixModes, manyVIPs(64), everything, proxied("proxy:", "  speaks: http", "  retries: 1", "  routes:",
			"    - {hosts: ['*.a', b], paths: [/c, /], backends: [web01]}", "  request_headers: ['A: b']",
			"  frontend: |", "    # c"), backends("scheduler: lc, limits: {connections: 5}", "upper: 10, lower: 5",
			"drain: true", "weight: 0"), services(line("a", "192.0.2.100", 80, "mode: dscp, dscp: 7"),
			line("b", "192.0.2.100", 81, "mode: dscp, dscp: 8")),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("f", data)
		if err != nil {
			var problems yamlfile.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error is a %T: %v", err, err)
			}
			for _, p := range problems {
				if !strings.HasPrefix(p.String(), "f:") || p.Message == "" || strings.ContainsRune(p.Field, '\n') {
					t.Fatalf("problem %q", p)
				}
			}
			return
		}
		if len(cfg.Interfaces) == 0 || len(cfg.Services) == 0 {
			t.Fatalf("checked and yet empty: %+v", cfg)
		}
		vipOf := map[uint8]netip.Addr{}
		for _, s := range cfg.Services {
			if !s.VIP.IsValid() || s.Port == 0 || s.Name == "" || len(s.Backends) == 0 {
				t.Fatalf("checked and yet empty: %+v", s)
			}
			if (s.DSCP != 0) != (s.Mode == lb.DSCP) || s.DSCP > 63 || s.MSS != 0 &&
				(s.MSS < 536 || s.Protocol != lb.TCP) {
				t.Fatalf("checked and yet wrong: %+v", s)
			}
			if other, taken := vipOf[s.DSCP]; taken && s.DSCP != 0 && other != s.VIP {
				t.Fatalf("DSCP value %d stands for %s and %s", s.DSCP, other, s.VIP)
			}
			vipOf[s.DSCP] = s.VIP
			if s.Mode == lb.FullNAT && !slices.ContainsFunc(cfg.Pool().Addresses, func(a netip.Addr) bool {
				return a.Is4() == s.VIP.Is4()
			}) {
				t.Fatalf("no source address for %+v in %+v", s, cfg.FullNAT)
			}
			expectProperties(t, s)
			for _, b := range s.Backends {
				if b.Port == 0 || s.Mode.KeepsPort() && b.Port != s.Port || !s.Mode.CrossesFamilies() &&
					b.Address.Is4() != s.VIP.Is4() || b.Name == "" {
					t.Fatalf("checked and yet wrong: %+v of %+v", b, s)
				}
			}
		}
		checkRoundTrip(t, cfg)
	})
}

// expectProperties fails where a service has a property that Parse promises to refuse.
func expectProperties(t *testing.T, s lb.Service) {
	t.Helper()
	takers := 0
	for _, b := range s.Backends {
		if b.Lower > b.Upper || b.Upper > 1<<28 {
			t.Fatalf("checked and yet wrong: %+v", b)
		}
		if b.TakesFlows() {
			takers++
		}
	}
	switch persistence := s.Persistence; {
	case takers == 0, s.Limits.Burst > 0 && s.Limits.Rate == 0, s.Limits.Refuse != lb.RefuseByDrop &&
		s.Limits.Refuse != lb.RefuseByReset,
		s.Hash != "" && s.Scheduler != lb.Maglev,
		persistence.On() != (persistence.Prefix > 0), int(persistence.Prefix) > s.VIP.BitLen(),
		persistence.Timeout > 24*time.Hour,
		s.TableSize != 0 && int(s.TableSize) < len(s.Backends) && s.Scheduler != lb.Failover,
		s.Transition.Window < time.Second:
		t.Fatalf("checked and yet wrong: %+v", s)
	}
}
