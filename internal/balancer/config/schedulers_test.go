// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// equalWeights is a service of n backends of the same weight, with further fields on line 6.
func equalWeights(n int, more string) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"interface: eth0\nservices:\n  - name: web\n    vip: 192.0.2.100\n    port: 80\n    %s\n    mode: gue\n    backends:\n", more)
	for j := range n {
		fmt.Fprintf(&b, "      - {name: b%d, address: 10.%d.%d.%d}\n", j, j>>16, j>>8&255, j&255)
	}
	return b.String()
}

func TestSchedulerProblems(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"hash": {limited("hash: src"),
			[]string{`f:3: services[0].hash: unknown hash "src": use flow or source`}},
		"hash with rr": {limited("scheduler: rr, hash: source"),
			[]string{"f:3: services[0].hash: the scheduler rr does not go by a hash; remove the line, or use maglev"}},
		"hash with fo": {limited("hash: flow, scheduler: fo"),
			[]string{"f:3: services[0].hash: the scheduler fo does not go by a hash; remove the line, or use maglev"}},
		"hash with sh": {limited("scheduler: sh, hash: source"), []string{
			"f:3: services[0].hash: the scheduler sh always goes by the source; remove the line, or use maglev to go by the flow"}},
		"hash with a wrong scheduler": {limited("scheduler: lblc, hash: source"), []string{
			`f:3: services[0].scheduler: unknown scheduler "lblc": use one of rr, wrr, lc, wlc, sh, maglev, random2, fo`}},
		"table size": {limited("table_size: 1024"),
			[]string{"f:3: services[0].table_size: maglev table size is not a prime number: 1024; the next prime is 1031"}},
		"table size of the service": {"table_size: 65537\n" + backends("table_size: 2", "weight: 1", "weight: 1",
			"drain: true"), []string{
			"f:4: services[0].table_size: 2 slots cannot hold the 3 backends of services[0]; use 1021"}},
		"table size of the file": {"table_size: 1021\n" + equalWeights(1022, "scheduler: rr"), []string{
			"f:1: table_size: 1021 slots cannot hold the 1022 backends of services[0]; use 1048573"}},
		"weights": {backends("scheduler: wrr", "weight: -1", "weight: 65536", "weight: heavy"), []string{
			`f:3: services[0].backends[0].weight: "-1" is not a whole number from 0 to 65535`,
			`f:3: services[0].backends[1].weight: "65536" is not a whole number from 0 to 65535`,
			`f:3: services[0].backends[2].weight: "heavy" is not a whole number from 0 to 65535`}},
		"backends": {equalWeights(MaxBackends+1, "scheduler: rr"), []string{
			"f:8: services[0].backends: 32768 are more than the 32767 that a service can have; split them between two services"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f", []byte(test.file))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchedulerWarnings(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"lc and weights": {backends("scheduler: lc", "weight: 1", "weight: 0", "weight: 2"), []string{
			"f:3: services[0].backends[2].weight: differs from the others, but the scheduler lc goes by the number of flows alone (only 0 counts); use wlc for weights"}},
		"fo and weights": {backends("scheduler: fo", "weight: 2", "weight: 1"), []string{
			"f:3: services[0].backends[1].weight: differs from the others, but the scheduler fo goes by the order of the backends (only 0 counts); write them in the order in which they shall serve"}},
		"fo and a table": {limited("scheduler: fo, table_size: 2"),
			[]string{"f:3: services[0].table_size: the scheduler fo has no table, so this is not used"}},
		"fo and the file's": {"table_size: 2\n" + backends("scheduler: fo", "weight: 1", "weight: 1", "weight: 1"),
			nil},
		"small table": {backends("table_size: 199", "weight: 1", "weight: 1"),
			[]string{smallTable("table_size", 199, 2, 211)}},
		"table with rr": {backends("table_size: 199, scheduler: rr", "weight: 1", "weight: 1"), nil},
		"as many as the largest table is good for": {equalWeights(10485, "scheduler: sh"), nil},
		"more": {equalWeights(10486, "scheduler: sh"), []string{
			strings.Replace(smallTable("backends", 1048573, 10486, 1048601), "f:3", "f:8", 1)}},
		"too light for the table": {backends("scheduler: random2", "weight: 1", "weight: 1000"), []string{
			"f:3: services[0].backends[0].weight: 1 of 1001 comes to 1 of 1021 slots, so rounding decides the share; use weights that are closer to each other, or table_size: 10037"}},
		"too light for any table": {backends("scheduler: maglev", append(slices.Repeat([]string{"weight: 65535"}, 26),
			"weight: 1")...), []string{
			"f:3: services[0].backends[26].weight: 1 of 1703911 comes to 0.0048 of 8191 slots, so rounding decides the share; use weights that are closer to each other"}},
		"heavy enough": {backends("scheduler: maglev", "weight: 1", "weight: 101"), nil},
		"idle ones do not count": {backends("scheduler: maglev", "weight: 1, drain: true", "weight: 0",
			"weight: 1000"), nil},
		"turns that come out": {backends("scheduler: wrr", "weight: 1", "weight: 65535", "weight: 65535"), nil},
		"turns by a common divisor": {backends("scheduler: wrr", "weight: 2", "weight: 65534", "weight: 65534",
			"weight: 65534"), nil},
		"too light for a round": {backends("scheduler: wrr", "weight: 1", "weight: 65535", "weight: 65535",
			"weight: 65535"), []string{
			"f:3: services[0].backends[0].weight: 1 of 196606 comes to 0.67 of 131071 turns of a round, so rounding decides the share; use weights that are closer to each other"}},
		"least connections by weight": {backends("scheduler: wlc", "weight: 1", "weight: 65535"), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { wantWarnings(t, test.file, test.want) })
	}
}

// smallTable warns, at a field of the first service, of a table with fewer slots than
// its backends want.
func smallTable(field string, slots, backends, better int) string {
	return fmt.Sprintf(
		"f:3: services[0].%s: %d slots are fewer than 100 for each of the %d backends of services[0], so their shares are uneven; use a larger prime, such as table_size: %d",
		field, slots, backends, better)
}

// TestEveryScheduler: each by its name, with a table of the service's own.
func TestEveryScheduler(t *testing.T) {
	for _, scheduler := range lb.Schedulers {
		cfg, err := Parse("f", []byte(limited("scheduler: "+string(scheduler))))
		if err != nil || cfg.Services[0].Scheduler != scheduler || len(cfg.Warnings) > 0 {
			t.Errorf("%s: %+v, error %v", scheduler, cfg, err)
		}
	}
}

// manyServices is a file of services of so many backends each, as long as such a file
// well gets: a line for each value.
func manyServices(services, backends int) string {
	var b strings.Builder
	b.WriteString("interface: eth0\nservices:\n")
	for i := range services {
		fmt.Fprintf(&b, "  - name: service%05d\n    vip: 198.%d.%d.%d\n    port: 80\n    mode: gue\n    backends:\n", i,
			18+i/65536, i>>8&255, i&255)
		for j := range backends {
			fmt.Fprintf(&b, "      - name: web%05d-%05d\n        address: 10.%d.%d.%d\n        weight: 100\n", i, j,
				i%250, j/250, j%250+1)
		}
	}
	return b.String()
}

// TestLargeFiles reads the largest configurations that a balancer is made for.
func TestLargeFiles(t *testing.T) {
	for _, size := range []struct{ services, backends int }{{1000, 5}, {1, 10000}} {
		cfg, err := Parse("f", []byte(manyServices(size.services, size.backends)))
		if err != nil {
			t.Fatalf("%.1000v", err)
		}
		if last := cfg.Services[len(cfg.Services)-1]; len(cfg.Services) != size.services ||
			len(last.Backends) != size.backends || len(cfg.Warnings) > 0 {
			t.Errorf("%d services, the last with %d backends, want %d with %d; warnings %.1000v",
				len(cfg.Services), len(last.Backends), size.services, size.backends, cfg.Warnings)
		}
	}
	_, err := Parse("f", []byte(manyServices(MaxServices+1, 1)))
	if want := "f:2: services: 65537 are more than the 65536 that a balancer can hold; split them between two"; err == nil || err.Error() != want {
		t.Errorf("error %.1000v, want %s", err, want)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []struct{ services, backends int }{{10000, 10}, {10, 10000}} {
		data := []byte(manyServices(size.services, size.backends))
		b.Run(fmt.Sprintf("services=%d/backends=%d", size.services, size.backends), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := Parse("f", data); err != nil {
					b.Fatalf("%.1000v", err)
				}
			}
		})
	}
}
