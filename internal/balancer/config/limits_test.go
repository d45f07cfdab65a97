// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// everything has each field of schedulers, limits and tables of flows.
const everything = `
interface: eth0
table_size: 8191
flows:
  limit: 5000000
  unproven: 100000
  timeouts: {opening: 10s, first: 20s, established: 1h, udp: 5m, fin: 30s, closed: 5s}
transition: {tcp: 10m, udp: 10s}
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    scheduler: wlc
    persistence: {timeout: 1h30m, prefix: 24}
    limits: {rate: 1000, burst: 0, connections: 50000, refuse: reset}
    backends:
      - {name: a, address: 192.0.2.1, weight: 65535, upper: 1000, lower: 1000}
      - {name: b, address: 192.0.2.2, upper: 1000, lower: 800, weight: 65535}
      - {name: c, address: 192.0.2.3, drain: true, weight: 65535}
  - name: dns
    vip: 2001:db8::100
    port: 53
    protocol: udp
    hash: source
    table_size: 1021
    persistence: {timeout: 1s}
    limits: {rate: 999}
    backends:
      - {name: a, address: "2001:db8::1", drain: false}
`

func TestEverything(t *testing.T) {
	got, err := Parse("f", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	flows := Flows{Limit: 5000000, Unproven: 100000, Timeouts: lb.Timeouts{Opening: 10 * time.Second,
		First:       20 * time.Second,
		Established: time.Hour, UDP: 5 * time.Minute, Fin: 30 * time.Second, Closed: 5 * time.Second}}
	if diff := cmp.Diff(flows, got.Flows); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Transition{TCP: 10 * time.Minute, UDP: 10 * time.Second}, got.Transition); diff != "" {
		t.Errorf("transition (-want +got):\n%s", diff)
	}
	want := []lb.Service{{
		Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR,
		Scheduler: lb.WeightedLeastConnections,
		TableSize: 8191, Persistence: lb.Persistence{Timeout: 90 * time.Minute, Prefix: 24},
		Transition: lb.Transition{Window: 10 * time.Minute},
		Limits:     lb.Limits{Rate: 1000, Connections: 50000, Refuse: lb.RefuseByReset},
		Backends: []lb.Backend{
			{Name: "a", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 65535, Upper: 1000, Lower: 1000},
			{Name: "b", Address: netip.MustParseAddr("192.0.2.2"), Port: 80, Weight: 65535, Upper: 1000, Lower: 800},
			{Name: "c", Address: netip.MustParseAddr("192.0.2.3"), Port: 80, Weight: 65535, Draining: true},
		},
	}, {
		Name: "dns", VIP: netip.MustParseAddr("2001:db8::100"), Port: 53, Protocol: lb.UDP, Mode: lb.L2DSR,
		Scheduler: lb.Maglev, Hash: lb.HashSource,
		TableSize: 1021, Persistence: lb.Persistence{Timeout: time.Second, Prefix: 128},
		Transition: lb.Transition{Window: 10 * time.Second},
		Limits:     lb.Limits{Rate: 999, Burst: 100, Refuse: lb.RefuseByDrop}, // a tenth of the rate, rounded up
		Backends:   []lb.Backend{{Name: "a", Address: netip.MustParseAddr("2001:db8::1"), Port: 53, Weight: 1}},
	}}
	if diff := cmp.Diff(want, got.Services, compare); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if len(got.Warnings) > 0 {
		t.Errorf("warnings: %v", got.Warnings)
	}
}

// TestLeftOut: defaults that depend on other keys of the file.
func TestLeftOut(t *testing.T) {
	got, err := Parse("f", []byte("flows: {limit: 2000}\n"+services(
		line("a", "192.0.2.100", 80, "persistence: {timeout: 5m}"),
		line("b", "192.0.2.100", 81, "limits: {rate: 1}"),
		"  - {name: c, vip: 192.0.2.100, port: 82, backends: [{name: a, address: 192.0.2.1, upper: 5}]}\n",
		line("d", "192.0.2.100", 83, "mode: l2dsr"))))
	if err != nil {
		t.Fatal(err)
	}
	if got.Flows.Unproven != 2000 || len(got.Warnings) > 0 {
		t.Errorf("%d unproven flows beside 2000 proven ones, warnings %v", got.Flows.Unproven, got.Warnings)
	}
	a, b, c, d := got.Services[0], got.Services[1], got.Services[2], got.Services[3]
	if a.Persistence.Prefix != 32 || b.Limits.Burst != 1 || b.Limits.Refuse != lb.RefuseByDrop ||
		c.Limits.Refuse != lb.RefuseByDrop ||
		d.Limits.Refuse != lb.RefuseByDrop || d.TableSize != 0 {
		t.Errorf("prefix %d; burst %d, refuse %q; thresholds: refuse %q; none: refuse %q, table size %d",
			a.Persistence.Prefix,
			b.Limits.Burst, b.Limits.Refuse, c.Limits.Refuse, d.Limits.Refuse, d.TableSize)
	}
}

// TestFullNAT: flows of full NAT are remembered as those of the other modes, so every
// scheduler and limit works there.
func TestFullNAT(t *testing.T) {
	for _, scheduler := range lb.Schedulers {
		file := "fullnat: {addresses: [192.0.2.9]}\n" +
			backends("mode: fullnat, persistence: {timeout: 5m}, limits: {rate: 5, connections: 9, refuse: reset}, scheduler: "+
				string(scheduler), "upper: 5, lower: 4", "weight: 1")
		cfg, err := Parse("f", []byte(file))
		if err != nil || len(cfg.Warnings) > 0 {
			t.Errorf("%s: error %v, warnings %v", scheduler, err, cfg.Warnings)
			continue
		}
		s := cfg.Services[0]
		if s.Scheduler != scheduler || s.Persistence.Prefix != 32 ||
			s.Limits != (lb.Limits{Rate: 5, Burst: 1, Connections: 9, Refuse: lb.RefuseByReset}) ||
			s.Backends[0].Upper != 5 || s.Backends[0].Lower != 4 {
			t.Errorf("%s: %+v", scheduler, s)
		}
	}
}

// TestRefusalWithoutLimits: it holds for packets that no backend can take, too, and UDP has an answer.
func TestRefusalWithoutLimits(t *testing.T) {
	for _, more := range []string{"limits: {refuse: reset}", "protocol: udp, limits: {refuse: reset}",
		"protocol: udp, limits: {rate: 5, refuse: reset}"} {
		cfg, err := Parse("f", []byte(limited(more)))
		if err != nil || len(cfg.Warnings) > 0 || cfg.Services[0].Limits.Refuse != lb.RefuseByReset {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// backends is a service whose backends have these fields, on line 3.
func backends(more string, fields ...string) string {
	var list []string
	for j, field := range fields {
		list = append(list, fmt.Sprintf("{name: b%d, address: 192.0.2.%d, %s}", j, j+1, field))
	}
	return services(fmt.Sprintf("  - {name: a, vip: 192.0.2.100, port: 80, %s, backends: [%s]}\n", more,
		strings.Join(list, ", ")))
}

// limited is a service of one backend with these fields, on line 3.
func limited(more string) string { return services(line("a", "192.0.2.100", 80, more)) }

func TestLimitProblems(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		// Thresholds.
		"lower above upper": {backends("mode: gue", "upper: 10, lower: 11"), []string{
			"f:3: services[0].backends[0].lower: 11 is above upper, 10: a backend that is full at 10 takes new ones again when it has fewer than lower; write a number up to 10"}},
		"lower without upper": {backends("mode: gue", "upper: 10, lower: 9", "lower: 9"), []string{
			"f:3: services[0].backends[1].lower: says when a full backend takes new flows again, and without upper it is never full; add upper or remove the line"}},
		"upper 0": {backends("mode: gue", "upper: 0, lower: 0"), []string{
			"f:3: services[0].backends[0].upper: 0 would let nothing pass; write a number from 1 to 268435456, or remove the line to have no bound",
			`f:3: services[0].backends[0].lower: "0" is not a whole number from 1 to 268435456`}},
		"upper is a word": {backends("mode: gue", "upper: many, lower: 9"),
			[]string{`f:3: services[0].backends[0].upper: "many" is not a whole number from 1 to 268435456`}},
		"upper -1": {backends("mode: gue", "upper: -1"),
			[]string{`f:3: services[0].backends[0].upper: "-1" is not a whole number from 1 to 268435456`}},
		"upper high": {backends("mode: gue", "upper: 268435457"),
			[]string{`f:3: services[0].backends[0].upper: "268435457" is not a whole number from 1 to 268435456`}},
		"upper a list": {backends("mode: gue", "upper: [1]"),
			[]string{"f:3: services[0].backends[0].upper: must be a single value"}},

		// Rate, cap and refusal.
		"rate 0": {limited("limits: {rate: 0}"),
			[]string{"f:3: services[0].limits.rate: 0 would let nothing pass; write a number from 1 to 10000000, or remove the line to have no bound"}},
		"rate high": {limited("limits: {rate: 10000001}"),
			[]string{`f:3: services[0].limits.rate: "10000001" is not a whole number from 1 to 10000000`}},
		"rate of a fraction": {limited("limits: {rate: 0.5, burst: 1, refuse: drop}"),
			[]string{`f:3: services[0].limits.rate: "0.5" is not a whole number from 1 to 10000000`}},
		"burst without rate": {limited("limits: {burst: 10, connections: 5}"),
			[]string{"f:3: services[0].limits.burst: there is no rate for it to go beyond; add rate or remove the line"}},
		"burst wrong": {limited("limits: {burst: many, connections: 5}"),
			[]string{`f:3: services[0].limits.burst: "many" is not a whole number from 0 to 10000000`}},
		"connections 0": {limited("limits: {connections: 0, refuse: reset}"),
			[]string{"f:3: services[0].limits.connections: 0 would let nothing pass; write a number from 1 to 268435456, or remove the line to have no bound"}},
		"refuse otherwise": {limited("limits: {rate: 5, refuse: reject}"),
			[]string{`f:3: services[0].limits.refuse: unknown refusal "reject": use drop or reset`}},
		"limits are no list": {limited("limits: 1000"),
			[]string{"f:3: services[0].limits: must be a mapping (key: value)"}},
		"no such limit": {limited("limits: {rat: 5}"),
			[]string{"f:3: services[0].limits.rat: unknown key; did you mean rate?"}},

		// Persistence.
		"persistence without time": {limited("persistence: {prefix: 24}"),
			[]string{"f:3: services[0].persistence.timeout: missing; add it"}},
		"persistence 0": {limited("persistence: {timeout: 0s}"),
			[]string{`f:3: services[0].persistence.timeout: "0s" is not from 1s to 24h`}},
		"persistence negative": {limited("persistence: {timeout: -5m}"),
			[]string{`f:3: services[0].persistence.timeout: "-5m" is not from 1s to 24h`}},
		"persistence long": {limited("persistence: {timeout: 24h1s}"),
			[]string{`f:3: services[0].persistence.timeout: "24h1s" is not from 1s to 24h`}},
		"persistence bare": {limited("persistence: {timeout: 300}"),
			[]string{`f:3: services[0].persistence.timeout: "300" has no unit; write seconds as "300s", minutes as 5m, hours as 2h`}},
		"persistence bare 0": {limited("persistence: {timeout: 0}"),
			[]string{`f:3: services[0].persistence.timeout: "0" is not from 1s to 24h`}},
		"persistence in days": {limited("persistence: {timeout: 1d}"),
			[]string{`f:3: services[0].persistence.timeout: "1d" is not a length of time; write one such as 30s, 5m or 1h30m`}},
		"prefix 0": {limited("persistence: {timeout: 5m, prefix: 0}"),
			[]string{`f:3: services[0].persistence.prefix: "0" is not a whole number from 1 to 128`}},
		"prefix of IPv4": {limited("persistence: {timeout: 5m, prefix: 48}"), []string{
			"f:3: services[0].persistence.prefix: 48 is more than the 32 bits of an IPv4 address, which clients of 192.0.2.100 have; write a number from 1 to 32"}},
		"prefix beside a wrong time": {limited("persistence: {timeout: x, prefix: 33}"), []string{
			`f:3: services[0].persistence.timeout: "x" is not a length of time; write one such as 30s, 5m or 1h30m`,
			"f:3: services[0].persistence.prefix: 33 is more than the 32 bits of an IPv4 address, which clients of 192.0.2.100 have; write a number from 1 to 32"}},
		"prefix of IPv6": {services(line("a", "2001:db8::100", 80, "persistence: {timeout: 5m, prefix: 129}")),
			[]string{`f:3: services[0].persistence.prefix: "129" is not a whole number from 1 to 128`}},

		// Drains.
		"drain": {backends("mode: gue", "drain: yes", "weight: 1"),
			[]string{`f:3: services[0].backends[0].drain: "yes" is neither true nor false`}},
		"drain number": {backends("mode: gue", "drain: 1"),
			[]string{`f:3: services[0].backends[0].drain: "1" is neither true nor false`}},
		"all drained": {backends("mode: gue", "drain: true", "drain: true, weight: 5"), []string{
			"f:3: services[0].backends: every backend is drained, so no backend would take new connections; end the drain of one, add another, or remove the service"}},
		"drained or idle": {backends("mode: gue", "drain: true", "weight: 0"), []string{
			"f:3: services[0].backends: every backend is drained or has weight 0, so no backend would take new connections; let one take them again, add another, or remove the service"}},
		"drained or wrong": {backends("mode: gue", "drain: true", "weight: x"),
			[]string{`f:3: services[0].backends[1].weight: "x" is not a whole number from 0 to 65535`}},

		// The tables of flows.
		"flows few": {"flows: {limit: 1023}\n" + limited("mode: gue"),
			[]string{`f:1: flows.limit: "1023" is not a whole number from 1024 to 268435456`}},
		"flows many": {"flows: {limit: 268435457, unproven: 0}\n" + limited("mode: gue"),
			[]string{`f:1: flows.limit: "268435457" is not a whole number from 1024 to 268435456`,
				`f:1: flows.unproven: "0" is not a whole number from 1024 to 268435456`}},
		"timeout short": {"flows: {timeouts: {opening: 999ms}}\n" + limited("mode: gue"),
			[]string{`f:1: flows.timeouts.opening: "999ms" is not from 1s to 10m`}},
		"timeout long": {"flows: {timeouts: {established: 168h1ns, udp: 25h}}\n" + limited("mode: gue"),
			[]string{`f:1: flows.timeouts.established: "168h1ns" is not from 1s to 168h`,
				`f:1: flows.timeouts.udp: "25h" is not from 1s to 24h`}},
		"timeout bare": {"flows: {timeouts: {fin: 1e2}}\n" + limited("mode: gue"),
			[]string{`f:1: flows.timeouts.fin: "1e2" has no unit; write seconds as "1e2s", minutes as 5m, hours as 2h`}},
		"timeout unknown": {"flows: {timeouts: {syn: 5s}}\n" + limited("mode: gue"),
			[]string{"f:1: flows.timeouts.syn: unknown key; did you mean fin?"}},
		"transition": {"transition: {tcp: 0s, udp: 24h0m1s}\n" + limited("mode: gue"),
			[]string{`f:1: transition.tcp: "0s" is not from 1s to 24h`,
				`f:1: transition.udp: "24h0m1s" is not from 1s to 24h`}},
		"transition alone": {"transition: 5m\n" + limited("mode: gue"),
			[]string{"f:1: transition: must be a mapping (key: value)"}},
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

func TestLimitWarnings(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"unproven above proven": {"flows: {limit: 2000, unproven: 2001}\n" + limited("mode: gue"), []string{
			"f:1: flows.unproven: 2001 is more than the limit of 2000 for proven flows, and each of those begins here; a quarter of it is usual"}},
		"as many unproven": {"flows: {limit: 2000, unproven: 2000}\n" + limited("mode: gue"), nil},
		"hasty": {"flows: {timeouts: {established: 299s}}\n" + limited("mode: gue"), []string{
			"f:1: flows.timeouts.established: a connection that is silent for 4m59s is forgotten, and its next packet may go to another backend, which resets it; 2h4m is what RFC 5382 asks of a NAT"}},
		"cap above what is remembered": {"flows: {limit: 2000}\n" + limited("limits: {connections: 2001}"), []string{
			"f:4: services[0].limits.connections: 2001 is more than the 2000 flows that are remembered (flows.limit), and what cannot be remembered is not let in; raise that or lower this"}},
		"cap above what is remembered by default": {limited("limits: {connections: 1000001}"), []string{
			"f:3: services[0].limits.connections: 1000001 is more than the 1000000 flows that are remembered (flows.limit), and what cannot be remembered is not let in; raise that or lower this"}},
		"threshold above what is remembered": {"flows: {limit: 2000}\n" + backends("mode: gue", "upper: 2000",
			"upper: 3000"), []string{
			"f:4: services[0].backends[1].upper: 3000 is more than the 2000 flows that are remembered (flows.limit), and what cannot be remembered is not let in; raise that or lower this"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { wantWarnings(t, test.file, test.want) })
	}
}

// wantWarnings parses a file that is correct, and compares its warnings.
func wantWarnings(t *testing.T, file string, want []string) {
	t.Helper()
	cfg, err := Parse("f", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range cfg.Warnings {
		got = append(got, w.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
