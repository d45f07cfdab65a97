// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// amendedFile has the settings that services of other sources depend on.
const amendedFile = `interface: eth0
table_size: 1021
flows: {limit: 2000}
fullnat: {addresses: [10.9.9.9]}
bgp: {asn: 65001, router_id: 10.0.0.1, peers: [{address: 10.0.0.2, asn: 65000}]}
services:
  - {name: filed, vip: 192.0.2.9, port: 80, mode: dscp, backends: [{name: a, address: 10.0.0.1}]}
  - {name: pooled, vip: 192.0.2.8, port: 80, mode: fullnat, backends: [{name: a, address: 10.0.0.1}]}
`

// anyService returns a service of a name; many of them warn of something.
func anyService(random *rand.Rand, name string, number int) string {
	modes := []string{"l2dsr", "nat", "fullnat", "dscp", "ipip"}
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %s\n    vip: 198.18.0.%d\n    port: %d\n    mode: %s\n", name, number, 80+random.IntN(3),
		modes[random.IntN(len(modes))])
	for _, line := range []string{"scheduler: wrr", "table_size: 8191", "persistence: {timeout: 5m}", "check: tcp", "on_empty: keep",
		"limits: {rate: 100, connections: 5000}", "slow_start: 30s"} {
		if random.IntN(3) == 0 {
			b.WriteString("    " + line + "\n")
		}
	}
	b.WriteString("    backends:\n")
	for j := range 1 + random.IntN(3) {
		fmt.Fprintf(&b, "      - {name: b%d, address: 10.1.%d.%d, weight: %d}\n", j, number, j+1, 1+random.IntN(500))
	}
	return b.String()
}

// TestAmend: whatever differences a source takes one after the other, the configuration is the one that the text of all
// its services makes.
func TestAmend(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	file, other := Source{"f", []byte(amendedFile)}, fragmentOf("zoo", "shop", "192.0.2.101")
	cfg, err := Merge(file, Source{"api", nil}, other)
	if err != nil {
		t.Fatal(err)
	}
	there, taken := map[string]bool{}, 0
	for range 40 {
		text, removed, put := "", "", map[string]bool{}
		for range 1 + random.IntN(4) {
			number := 1 + random.IntN(9)
			if name := fmt.Sprintf("s%d", number); put[name] {
				continue
			} else if put[name] = true; there[name] && random.IntN(3) == 0 {
				removed += fmt.Sprintf("  - %s\n", name)
			} else {
				text += anyService(random, name, number)
			}
		}
		if text != "" {
			text = FragmentHead + text
		}
		if removed != "" {
			text += "remove:\n" + removed
		}
		next, difference, err := cfg.Amend(Source{"api", []byte(text)})
		if err != nil {
			t.Logf("refused: %v", err)
			continue
		}
		taken++
		if next, difference, err = cfg.Amend(Source{"api", amendmentText(t, next, difference)}); err != nil {
			t.Fatal(err)
		}
		for _, name := range difference.Removed {
			delete(there, name)
		}
		for _, s := range difference.Put {
			there[s.Name] = true
		}
		compareWhole(t, next, file, other)
		cfg = next
	}
	if taken < 20 {
		t.Errorf("of 40 differences %d were taken", taken)
	}
}

// amendmentText is the text of a difference, as it is stored.
func amendmentText(t *testing.T, c *Config, difference Amendment) []byte {
	t.Helper()
	var texts [][]byte
	for _, s := range difference.Put {
		text, err := WriteService(c, s)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	text, err := WriteAmendment(texts, difference.Removed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// compareWhole compares a configuration with the one that the whole text of the source api makes.
func compareWhole(t *testing.T, got *Config, file, other Source) {
	t.Helper()
	text, err := WriteFragment(got, "api")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Merge(file, Source{"api", text}, other)
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, text)
	}
	lines := cmpopts.IgnoreFields(yamlfile.Problem{}, "Line")
	sorted := cmpopts.SortSlices(func(a, b yamlfile.Problem) bool { return a.Field+a.Message < b.Field+b.Message })
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	samePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{}), lines, sorted, same, samePrefix,
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Fatalf("configuration (-of the whole text +amended):\n%s\nof:\n%s", diff, text)
	}
	checkWriteServices(t, got)
	whole := []byte(nil)
	for i, s := range got.Services {
		if got.Owner(i) != want.Owner(i) {
			t.Fatalf("service %s is of %s, and of the whole text of %s", s.Name, got.Owner(i), want.Owner(i))
		}
		if got.Owner(i) == "api" {
			one, err := WriteService(got, s)
			if err != nil {
				t.Fatal(err)
			}
			whole = append(whole, one...)
		}
	}
	if len(text) > 0 && FragmentHead+string(whole) != string(text) {
		t.Fatalf("the services one by one:\n%s\nall of them:\n%s", whole, text)
	}
}

// checkWriteServices fails unless all services in one go have the texts that they have one by one.
func checkWriteServices(t *testing.T, c *Config) {
	t.Helper()
	texts, err := WriteServices(c, c.Services)
	if err != nil || len(texts) != len(c.Services) {
		t.Fatalf("%d texts of %d services, %v", len(texts), len(c.Services), err)
	}
	for i, s := range c.Services {
		if one, err := WriteService(c, s); err != nil || string(one) != string(texts[i]) {
			t.Fatalf("service %s by itself (%v):\n%s\namong the others:\n%s", s.Name, err, one, texts[i])
		}
	}
}

// TestWriteServices writes services with every key, and with texts that look like the lines between services.
func TestWriteServices(t *testing.T) {
	c, err := Load(everyKey)
	if err != nil {
		t.Fatal(err)
	}
	checkWriteServices(t, c)
	odd := *c
	odd.Services = slices.Clone(c.Services)
	for i := range odd.Services {
		s := &odd.Services[i]
		s.Checks.List = append(slices.Clone(s.Checks.List), lb.Check{Type: lb.CheckHTTP, HTTP: &lb.HTTPCheck{
			Path: "/a\n  - name: a", Host: "- c\n  - d", Body: "\n  - name: a\n  - b\n"}})
	}
	checkWriteServices(t, &odd)
	checkWriteServices(t, New())
}

// TestAmendRefuses: a difference is refused with its own fields, whatever it is at odds with.
func TestAmendRefuses(t *testing.T) {
	cfg, err := Merge(Source{"f", []byte(amendedFile)}, fragmentOf("api", "shop", "192.0.2.101"),
		fragmentOf("zoo", "animal", "192.0.2.102"))
	if err != nil {
		t.Fatal(err)
	}
	service := func(name, vip, backend string) string {
		return fmt.Sprintf("services: [{name: %s, vip: %s, port: 80, backends: [{name: b, address: %s}]}]", name, vip,
			backend)
	}
	for name, test := range map[string]struct{ text, want string }{
		"name": {service("filed", "192.0.2.77", "10.0.0.1"),
			"api:1: services[0].name: filed is already the name of services[0].name (f, line 7)"},
		"place": {service("new", "192.0.2.102", "10.0.0.1"),
			"api:1: services[0].vip: tcp 192.0.2.102:80 is already taken by services[0].vip (zoo, line 4)"},
		"VIP that is a backend": {service("new", "10.0.0.1", "10.0.0.7"),
			"api:1: services[0].vip: 10.0.0.1 is the address of a backend, services[0].backends[0].address (f, line 7)"},
		"backend that is a VIP": {service("new", "192.0.2.77", "192.0.2.102"),
			"api:1: services[0].backends[0].address: 192.0.2.102 is the VIP of services[0].vip (zoo, line 4)"},
		"removed, and not there": {"remove: [animal]",
			"api:1: remove[0]: there is no service animal in the source"},
		"both": {service("shop", "192.0.2.77", "10.0.0.1") + "\nremove: [shop]",
			"api:2: remove[0]: shop is one of the services, too"},
		"key":   {"hook: tc", "api:1: hook: unknown key"},
		"empty": {"", "api: the file is empty; it needs services or remove"},
	} {
		_, _, err := cfg.Amend(Source{"api", []byte(test.text)})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	// A place that another service of the same difference leaves is free.
	moved, _, err := cfg.Amend(Source{"api", []byte(service("new", "192.0.2.101", "10.0.0.1") + "\nremove: [shop]")})
	if err != nil || len(moved.ServicesOf("api")) != 1 || moved.ServicesOf("api")[0].Name != "new" {
		t.Errorf("a place that becomes free: %v", err)
	}
	if len(cfg.ServicesOf("api")) != 1 || cfg.ServicesOf("api")[0].Name != "shop" {
		t.Error("the configuration before has changed")
	}
}

// TestAmendOfMany: services that replace others are not more.
func TestAmendOfMany(t *testing.T) {
	cfg, err := Merge(Source{"f", []byte("interface: eth0\nservices: []\n")}, fragmentOf("api", "first", "192.0.2.101"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < MaxServices; i++ {
		s := cfg.Services[0]
		s.Name, s.VIP = fmt.Sprintf("s%05d", i), netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		cfg.Services = append(cfg.Services, s)
	}
	service := func(name, vip string) string {
		return fmt.Sprintf("services: [{name: %s, vip: %s, port: 80, backends: [{name: b, address: 10.0.0.1}]}]\n", name,
			vip)
	}
	for _, text := range []string{service("first", "192.0.2.101"), service("s00007", "203.0.113.7"),
		service("more", "203.0.113.8") + "remove: [s00001]"} {
		amended, _, err := cfg.Amend(Source{"api", []byte(text)})
		if err != nil || len(amended.Services) != MaxServices {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, _, err := cfg.Amend(Source{"api", []byte(service("more", "203.0.113.8"))}); err == nil ||
		!strings.Contains(err.Error(), "services: 65537 services of all sources are more than the 65536") {
		t.Errorf("one more: %v", err)
	}
}

// TestAmendUses: addresses of full NAT that no service used are in force once one does.
func TestAmendUses(t *testing.T) {
	cfg, err := Merge(Source{"f", []byte("interface: eth0\nfullnat: {addresses: [10.9.9.9]}\nservices: []\n")})
	if err != nil || len(cfg.Warnings) != 1 {
		t.Fatalf("%v, warnings %v", err, cfg.Warnings)
	}
	used, _, err := cfg.Amend(Source{"api", []byte(
		"services: [{name: a, vip: 192.0.2.1, port: 80, mode: fullnat, backends: [{name: b, address: 10.0.0.1}]}]")})
	if err != nil || len(used.FullNAT.Addresses) != 1 || len(used.Warnings) > 0 {
		t.Fatalf("%v, addresses %v, warnings %v", err, used.FullNAT.Addresses, used.Warnings)
	}
	text, err := WriteAmendment(nil, []string{"a"})
	if err != nil || string(text) != "remove: [a]\n" {
		t.Errorf("a difference is written as %q, %v", text, err)
	}
	unused, _, err := used.Amend(Source{"api", text})
	if err != nil || len(unused.FullNAT.Addresses) > 0 || len(unused.Warnings) != 1 {
		t.Errorf("%v, addresses %v, warnings %v", err, unused.FullNAT.Addresses, unused.Warnings)
	}
}

// FuzzAmend: whatever a difference says, Amend returns, names its faults, and leaves the configuration as it was.
func FuzzAmend(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, seed := range []string{"services:\n" + anyService(random, "shop", 7), "remove: [shop]", "remove: [shop, shop, x]",
		"services: [{}]", "services: []\nremove: [null]", "a: &a [*a]", ""} {
		f.Add([]byte(seed))
	}
	cfg, err := Merge(Source{"f", []byte(amendedFile)}, Source{"api", nil}, fragmentOf("zoo", "shop", "192.0.2.101"))
	if err != nil {
		f.Fatal(err)
	}
	before := fmt.Sprintf("%+v", cfg.Services)
	f.Fuzz(func(t *testing.T, data []byte) {
		made, _, err := cfg.Amend(Source{"zoo", data})
		var problems yamlfile.Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("error is a %T: %v", err, err)
		}
		if err == nil && len(made.Services)-len(made.ServicesOf("zoo")) != len(cfg.Services)-len(cfg.ServicesOf("zoo")) {
			t.Errorf("services of others came or went: %+v", made.Services)
		}
		if now := fmt.Sprintf("%+v", cfg.Services); now != before {
			t.Fatalf("the configuration became another: %s, was %s", now, before)
		}
	})
}
