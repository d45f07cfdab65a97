// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	std "cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// sources are the addresses that mode fullnat sends from in an import, because the export has none.
var sources = []netip.Addr{netip.MustParseAddr("203.0.113.253"), netip.MustParseAddr("2001:db8:ffff::253")}

// imported reads an export with the importer of its dialect.
func imported(t testing.TB, dialect string, text []byte) *config.Config {
	t.Helper()
	result, err := importer.Import(dialect, draft.File{Name: "exported", Data: text},
		draft.Options{Interfaces: []string{"eth0"}, Sources: sources})
	if err != nil {
		t.Fatalf("the importer refuses the export: %v\n%s", err, text)
	}
	cfg, err := config.Parse("imported", result.Text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return cfg
}

// balanced has the properties of a service that a round trip keeps.
type balanced struct {
	VIP         netip.AddrPort
	Protocol    lb.Protocol
	Mode        lb.Mode
	Scheduler   lb.Scheduler
	Persistence lb.Persistence
	Limits      lb.Limits
	Allow, Deny []netip.Prefix
	Checks      []check
	Backends    []lb.Backend
	Proxy       *lb.Proxy
}

// proxied returns the properties of mode proxy that a round trip keeps, or nil if the service only balances
// connections.
func proxied(s lb.Service) *lb.Proxy {
	if s.Proxy == nil {
		return nil
	}
	p := *s.Proxy
	if p.Speaks != lb.SpeaksHTTP && len(p.Certificates) == 0 && p.BackendTLS == "" && p.SendProxy == 0 &&
		!p.AcceptProxy {
		return nil
	}
	retries := uint8(lb.DefaultProxyRetries)
	if p.Retries == nil {
		p.Retries = &retries
	}
	p.Speaks, p.Timeouts = std.Or(p.Speaks, lb.SpeaksTCP), p.Timeouts.WithDefaults(p.Speaks)
	if p.Speaks == lb.SpeaksTCP { // HAProxy has none then
		p.Timeouts = lb.ProxyTimeouts{}
	}
	// Requests that match no route go to all backends, which an import expresses by a route.
	if n := len(p.Routes); n > 1 && len(p.Routes[n-1].Hosts)+len(p.Routes[n-1].Paths) == 0 &&
		len(p.Routes[n-1].Backends) == len(s.Backends) {
		p.Routes = p.Routes[:n-1]
	}
	return &p
}

// check has the properties of a check that a round trip keeps.
type check struct {
	Type                 lb.CheckType
	Interval, Fast       string
	Port                 uint16
	Fall                 uint16
	Path, Host, TLS, DNS string
	Send, Expect         string
}

func checkOf(c lb.Check) check {
	k := check{Type: c.Type, Interval: c.Interval.String(), Fast: c.Fast.String(), Port: c.Port, Fall: c.Fall}
	if c.HTTP != nil {
		k.Path, k.Host = c.HTTP.Path, c.HTTP.Host
	}
	if c.TLS != nil {
		k.TLS = c.TLS.ServerName
	}
	if c.DNS != nil {
		k.DNS = c.DNS.Name + " " + c.DNS.Type
	}
	if c.UDP != nil {
		k.Send, k.Expect = string(c.UDP.Send), string(c.UDP.Expect)
	}
	return k
}

// kept returns the properties of a service that a round trip must keep: all without a remark of the exporter.
func kept(dialect string, s lb.Service) balanced {
	b := balanced{VIP: netip.AddrPortFrom(s.VIP, s.Port), Protocol: s.Protocol, Mode: s.Mode, Scheduler: s.Scheduler,
		Persistence: lb.Persistence{Timeout: s.Persistence.Timeout, Prefix: s.Persistence.Prefix}}
	if s.BySource() {
		b.Scheduler = lb.SourceHash
	}
	for _, c := range s.Checks.List {
		if plainly(dialect, c.Type) {
			c = lb.Check{Type: lb.CheckTCP, Interval: c.Interval, Fast: c.Fast, Port: c.Port, Fall: c.Fall}
		}
		b.Checks = append(b.Checks, checkOf(c))
	}
	for _, backend := range s.Backends {
		backend.Name = ""
		if backend.Lower == 0 {
			backend.Lower = backend.Upper
		}
		b.Backends = append(b.Backends, backend)
	}
	if dialect == "haproxy" {
		b.Limits = lb.Limits{Rate: s.Limits.Rate, Connections: s.Limits.Connections}
		b.Allow, b.Deny = slices.SortedFunc(slices.Values(s.Allow), netip.Prefix.Compare),
			slices.SortedFunc(slices.Values(s.Deny), netip.Prefix.Compare)
		b.Proxy = proxied(s)
		b.haproxy()
	} else {
		b.ipvs(dialect, s)
	}
	return b
}

// plainly reports whether a dialect only opens a connection for a type of check.
func plainly(dialect string, kind lb.CheckType) bool {
	switch kind {
	case lb.CheckGRPC:
		return true
	case lb.CheckTLS, lb.CheckAgent:
		return dialect == "keepalived"
	case lb.CheckDNS, lb.CheckUDP, lb.CheckICMP:
		return dialect == "haproxy"
	}
	return false
}

// haproxy clears the properties that HAProxy does not have.
func (b *balanced) haproxy() {
	if b.Mode != lb.NAT {
		b.Mode = lb.FullNAT
	}
	switch b.Scheduler {
	case lb.Maglev:
		b.Scheduler = lb.TwoChoices
	case lb.LeastConnections:
		b.Scheduler = lb.WeightedLeastConnections
	case lb.RoundRobin, lb.WeightedRoundRobin:
		b.Scheduler = lb.RoundRobin // or the other one, depending on the weights
	}
	var list []check
	for _, c := range b.Checks { // one, and an agent
		if c.Type == lb.CheckAgent {
			c = check{Type: lb.CheckAgent, Interval: c.Interval, Port: c.Port}
		} else if len(list) > 0 {
			continue
		}
		list = append(list, c)
	}
	b.Checks = list
	most := slices.MaxFunc(b.Backends, func(a, b lb.Backend) int { return int(a.Weight) - int(b.Weight) }).Weight
	for j := range b.Backends {
		backend := &b.Backends[j]
		backend.Lower = backend.Upper
		if most > 256 && backend.Weight > 0 {
			backend.Weight = uint16(max(1, (256*int(backend.Weight)+int(most)/2)/int(most)))
		}
	}
}

// ipvs clears the properties that IPVS does not have, with or without keepalived.
func (b *balanced) ipvs(dialect string, s lb.Service) {
	b.Backends = nil
	for _, backend := range s.Backends {
		backend.Name = ""
		switch {
		case backend.Backup && (dialect == "ipvsadm" || slices.ContainsFunc(b.Backends, func(b lb.Backend) bool {
			return b.Backup
		})):
			continue
		case backend.Backup:
			backend = lb.Backend{Address: backend.Address, Port: backend.Port, Weight: 1, Backup: true}
		case backend.Draining:
			backend.Draining, backend.Weight = false, 0
		case s.Scheduler == lb.Failover && backend.Weight > 0:
			backend.Weight = 1
		}
		if backend.Lower == 0 {
			backend.Lower = backend.Upper
		}
		b.Backends = append(b.Backends, backend)
	}
	if whole := b.Persistence.Timeout.Round(1e9); whole < b.Persistence.Timeout {
		b.Persistence.Timeout = whole + 1e9
	} else {
		b.Persistence.Timeout = whole
	}
	if dialect == "ipvsadm" {
		b.Checks = nil
	}
}

// TestRoundTrip: the import of an export has the services, backends, weights, schedulers, thresholds, persistence and
// checks of the original, except for what the exporter reported as lost.
func TestRoundTrip(t *testing.T) {
	for _, c := range cases(t) {
		for _, dialect := range Dialects() {
			t.Run(c.name+"/"+dialect, func(t *testing.T) {
				result := c.export(t, dialect)
				if result.Services == 0 {
					return
				}
				back := map[netip.AddrPort]lb.Service{}
				for _, s := range imported(t, dialect, result.Text).Services {
					back[netip.AddrPortFrom(s.VIP, s.Port)] = s
				}
				original, err := config.Parse("in", []byte(c.section("in")))
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, s := range original.Services {
					got, there := back[netip.AddrPortFrom(s.VIP, s.Port)]
					if !there {
						continue
					}
					n++
					if c.name == "quoting" && dialect == "keepalived" { // it cannot write that check, and reports it
						s.Checks = lb.Checks{}
					}
					if diff := cmp.Diff(kept(dialect, s), kept(dialect, got), cmp.Comparer(func(a, b netip.Addr) bool {
						return a == b
					}),
						cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
						cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
						t.Errorf("service %s (-original +came back):\n%s", s.Name, diff)
					}
				}
				if n != result.Services {
					t.Errorf("of %d services %d came back", result.Services, n)
				}
			})
		}
	}
}

// firstWords are the words that lines of an export begin with.
var firstWords = map[string]string{
	"haproxy": "frontend backend use_backend default_backend acl http-request http-after-response retries cookie dynamic-cookie-key nbthread cpu-map hard-stop-after user group " +
		"defaults mode timeout global external-check insecure-fork-wanted listen bind source balance hash-type maxconn rate-limit tcp-request stick-table stick option http-check server",
	"ipvsadm": "--set -A -a",
	"keepalived": "global_defs script_user enable_script_security virtual_server lb_algo lb_kind mh-port protocol persistence_timeout persistence_granularity sorry_server real_server weight uthreshold lthreshold inhibit_on_failure } " +
		"TCP_CHECK HTTP_GET SSL_GET DNS_CHECK UDP_CHECK PING_CHECK MISC_CHECK url path virtualhost status_code regex enable_sni connect_port delay_loop connect_timeout misc_timeout retry " +
		"delay_before_retry type name payload require_reply misc_path",
}

// FuzzExport: every configuration that loads is exported, and no value in it adds a line. Each line begins like the
// writer's lines, the number of services is as reported, and the importer reads the result.
func FuzzExport(f *testing.F) {
	for _, c := range cases(f) {
		f.Add([]byte(c.section("in")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := config.Parse("in", data)
		if err != nil || verbatim(cfg) {
			return
		}
		for _, dialect := range Dialects() {
			if result, err := Export(dialect, config.Source{Name: "in\nx", Data: data}); err == nil {
				checkLines(t, dialect, result)
			}
		}
	})
}

// verbatim reports whether a configuration has lines in HAProxy's own language, which may begin with any word.
// FuzzSnippet of balancer/proxy tests those.
func verbatim(cfg *config.Config) bool {
	return cfg.Proxy.Global != "" || slices.ContainsFunc(cfg.Services, func(s lb.Service) bool {
		return s.Proxy != nil && s.Proxy.Frontend+s.Proxy.Back != ""
	})
}

// checkLines checks the lines of an export, and imports them.
func checkLines(t *testing.T, dialect string, result *Result) {
	t.Helper()
	services := 0
	for line := range strings.Lines(string(result.Text)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			continue
		case !slices.Contains(strings.Fields(firstWords[dialect]), words[0]):
			t.Fatalf("%s: no line begins like this: %q", dialect, line)
		case slices.Contains([]string{"listen", "frontend", "-A", "virtual_server"}, words[0]):
			services++
		}
	}
	if services != result.Services {
		t.Fatalf("%s: %d services, %d of them in\n%s", dialect, result.Services, services, result.Text)
	}
	read, err := importer.Import(dialect, draft.File{Name: "exported", Data: result.Text},
		draft.Options{Sources: sources})
	if err != nil && !errors.Is(err, draft.ErrNothing) {
		t.Fatalf("%s: the importer refuses it: %v\n%s", dialect, err, result.Text)
	}
	for _, r := range read.Remarks {
		if strings.HasPrefix(r.Why, "not understood") {
			t.Fatalf("%s: %s", dialect, r)
		}
	}
}
