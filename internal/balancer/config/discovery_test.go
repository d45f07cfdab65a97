// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testdocs"
)

const discoverFile = `interface: eth0
fullnat: {addresses: [192.0.2.5]}
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    discover:
      file: {path: /f}
      dns: {name: web}
    backends:
      - {name: own, address: 192.0.2.1}
  - {name: shop, vip: 192.0.2.101, port: 80, mode: nat, discover: {file: {path: /s}}}
  - name: fixed
    vip: 192.0.2.102
    port: 80
    mode: nat
    backends: [{name: f1, address: 192.0.2.9, port: 8080}]
  - {name: full, vip: 192.0.2.103, port: 80, mode: fullnat, discover: {file: {path: /g}}}
`

// foundAt returns a set with backends that are named by their addresses, as ADDRESS or ADDRESS:PORT.
func foundAt(service string, origin lb.Origin, at ...string) lb.Discovered {
	set := lb.Discovered{Service: service, Origin: origin}
	for _, text := range at {
		name, text, _ := strings.Cut(text, "=")
		place, err := netip.ParseAddrPort(text)
		if err != nil {
			place = netip.AddrPortFrom(netip.MustParseAddr(text), 0)
		}
		set.Backends = append(set.Backends, lb.Backend{Name: name, Address: place.Addr(), Port: place.Port(),
			Weight: 1})
	}
	return set
}

// TestWithDiscovered: backends found stand behind those of the file, in the origins' order, and one that cannot be is
// left out under its cause.
func TestWithDiscovered(t *testing.T) {
	cfg, err := Parse("f", []byte(discoverFile))
	if err != nil {
		t.Fatal(err)
	}
	full, refused := cfg.WithDiscovered([]lb.Discovered{
		foundAt("web", lb.FromDNS, "d1=192.0.2.3", "d2=192.0.2.2", "own=192.0.2.4", "vip=192.0.2.101",
			"six=2001:db8::1", "port=192.0.2.6:8080", "pool=192.0.2.5", "far=198.51.100.1"),
		foundAt("web", lb.FromFile, "f1=192.0.2.2", "f2=192.0.2.1"),
		foundAt("shop", lb.FromFile, "s1=192.0.2.9:8080", "s2=192.0.2.9:8081", "s3=192.0.2.9"),
		foundAt("full", lb.FromFile, "g1=192.0.2.9:8080", "g2=192.0.2.9:8080", "own=127.0.0.1"),
		foundAt("gone", lb.FromFile, "x=192.0.2.77"),
	}, func(_ lb.Service, b lb.Backend) string {
		if b.Name == "far" {
			return "is too far"
		}
		return ""
	})
	var got []string
	for _, s := range full.Services {
		text := s.Name + ":"
		for _, b := range s.Backends {
			text += " " + b.Name + "@" + netip.AddrPortFrom(b.Address, b.Port).String() + "/" + string(b.Origin)
		}
		got = append(got, text)
	}
	want := []string{
		"web: own@192.0.2.1:80/ f1@192.0.2.2:80/file d1@192.0.2.3:80/dns",
		"shop: s2@192.0.2.9:8081/file s3@192.0.2.9:80/file",
		"fixed: f1@192.0.2.9:8080/",
		"full: g1@192.0.2.9:8080/file",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("backends (-want +got):\n%s", diff)
	}
	var why []string
	for _, r := range refused {
		why = append(why, r.Service+" "+string(r.Origin)+" "+r.Backend+" "+r.Reason)
	}
	wantWhy := []string{
		"web file f2 has the address of own of the configuration, which keeps it",
		"web dns d2 has the address of f1 (file), which keeps it",
		"web dns own has the name of another backend, 192.0.2.1 of the configuration, which keeps it",
		"web dns vip is at 192.0.2.101, the VIP of shop",
		"web dns six is at 2001:db8::1, which is IPv6, and the VIP 192.0.2.100 is IPv4, which only the modes ipip, gue and proxy can cross",
		"web dns port has port 8080, and l2dsr leaves the service's port 80 as it is; use nat or fullnat",
		"web dns pool is at 192.0.2.5, an address of the balancer (fullnat.addresses)",
		"web dns far is too far",
		"shop file s1 is at 192.0.2.9:8080, as fixed/f1 is, and with nat their replies would be ambiguous; use fullnat for one of the services",
		"full file g2 has the address of g1 (file), which keeps it",
		"full file own is a loopback address, which never leaves its host; use another",
	}
	if diff := cmp.Diff(wantWhy, why); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if n := len(cfg.Services[0].Backends); n != 1 {
		t.Errorf("the configuration itself has %d backends now", n)
	}
}

// TestDiscoveredLocal: with local, a backend of another family than the VIP is refused also in modes that cross
// families, as one of the configuration is.
func TestDiscoveredLocal(t *testing.T) {
	const service = `
interface: eth0
services:
  - name: tunnel
    vip: 192.0.2.100
    port: 80
    mode: ipip
    discover: {dns: {name: web.example.com}}
`
	set := foundAt("tunnel", lb.FromDNS, "four=192.0.2.7", "six=2001:db8::1")
	for _, c := range []struct {
		file          string
		names, reason []string
	}{
		{service, []string{"four", "six"}, nil},
		{"local: true" + service, []string{"four"}, []string{
			"is at 2001:db8::1, which is IPv6, and a socket that a client on this host (local) has opened to the VIP 192.0.2.100 cannot reach it"}},
		{"local: true" + strings.Replace(service, "mode: ipip", "mode: proxy\n    proxy: {speaks: tcp}", 1),
			[]string{"four", "six"}, nil},
	} {
		cfg, err := Parse("f", []byte(c.file))
		if err != nil {
			t.Fatal(err)
		}
		full, refused := cfg.WithDiscovered([]lb.Discovered{set}, nil)
		var names, reasons []string
		for _, b := range full.Services[0].Backends {
			names = append(names, b.Name)
		}
		for _, r := range refused {
			reasons = append(reasons, r.Reason)
		}
		if diff := cmp.Diff([][]string{c.names, c.reason}, [][]string{names, reasons}); diff != "" {
			t.Errorf("backends and refusals (-want +got):\n%s", diff)
		}
	}
}

// TestOverdue: a set that is out of date is used where the service had no backend otherwise.
func TestOverdue(t *testing.T) {
	cfg, err := Parse("f", []byte(discoverFile))
	if err != nil {
		t.Fatal(err)
	}
	overdue := func(set lb.Discovered) lb.Discovered {
		set.Overdue = true
		return set
	}
	full, _ := cfg.WithDiscovered([]lb.Discovered{overdue(foundAt("web", lb.FromDNS, "d=192.0.2.3")),
		overdue(foundAt("shop", lb.FromFile, "s=192.0.2.4"))}, nil)
	if web, shop := len(full.Services[0].Backends), len(full.Services[1].Backends); web != 1 || shop != 1 {
		t.Errorf("web has %d backends, and shop %d", web, shop)
	}
}

// TestDiscoverRefused: mistakes of the key name their places.
func TestDiscoverRefused(t *testing.T) {
	for key, want := range map[string]string{
		"discover: {}":                                         "f:6: services[0].discover: names no place to look in; add file, dns or docker",
		"discover: {file: {}}":                                 "f:6: services[0].discover.file.path: missing; add it",
		"discover: {file: {path: list.yaml}}":                  "is not an absolute path",
		"discover: {dns: {name: 'a b'}}":                       "is not a name of the DNS",
		"discover: {dns: {name: -a.example}}":                  "is not a name of the DNS",
		"discover: {dns: {name: a, type: MX}}":                 "unknown word",
		"discover: {dns: {name: a, type: SRV, port: 80}}":      "f:6: services[0].discover.dns.port: SRV records say the port of each backend; remove the line",
		"discover: {dns: {name: a, servers: [ns.example]}}":    "is not the address of a name server",
		"discover: {dns: {name: a, servers: ['192.0.2.1:0']}}": "is not the address of a name server",
		"discover: {docker: {socket: docker.sock}}":            "is not an absolute path",
		"discover: {dns: {name: a, hold: -1s}}":                "is not from 0s to 720h",
		"discover: {file: {path: /f, hold: 1s}}":               "hold",
		"discover: {file: {path: /f, stale: 0s}}":              "stale",
		"discover: {file: {path: /f, most: 0}}":                "most",
		"mode: nat":                                            "f:3: services[0].backends: missing; add it",
	} {
		_, err := Parse("f",
			[]byte("interface: eth0\nservices:\n  - name: web\n    vip: 192.0.2.100\n    port: 80\n    "+key+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") &&
			key != "discover: {}" {
			t.Errorf("%s:\n%v\nwant:\n%s", key, err, want)
		}
	}
}

// TestDocsList: the list that the page shows is one.
func TestDocsList(t *testing.T) {
	seen := false
	for _, page := range testdocs.Pages(t) {
		for _, block := range page.Blocks() {
			if block.Language == "yaml" && strings.HasPrefix(block.Text, "backends:") {
				seen = true
				if list, err := ReadBackends("list", []byte(block.Text), 10); err != nil || len(list) == 0 {
					t.Errorf("%s:%d: %v", page.Path, block.Line, err)
				}
			}
		}
	}
	if !seen {
		t.Error("no page shows a list")
	}
}
