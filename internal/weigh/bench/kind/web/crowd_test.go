// SPDX-License-Identifier: Apache-2.0

package web

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

func init() { bench.Register(AB) }

func TestOneKernelHoldsSoManyConnections(t *testing.T) {
	// The limits of a machine of 24 GiB; roomy has no such limits.
	roomy := probe.Limits{OpenFiles: 1_000_000, Cores: 64, LocalPorts: 60_000}
	limits := roomy
	limits.Orphans, limits.TCPPages = 131_072, 383_868
	form := bench.Form{Lab: bench.Size{Clients: 25, Servers: 25}, Web: bench.Web{FileBytes: 5120}, Repeats: 1,
		Subjects: []bench.Subject{{Name: "direct"}},
		Loads: []bench.Load{{Name: "ab", Kind: "ab", Concurrency: []int{131_072, 150_000, 191_934, 191_935},
			Requests: 200_000}}}
	tests := map[int]struct {
		linger     bool
		skipReason string
	}{
		131_072: {false, ""},
		150_000: {true, ""},
		191_934: {true, ""}, // of two pages each
		191_935: {true, "191935 connections at once: their answers take 383870 pages"},
	}
	for _, trial := range bench.Plan(form, limits, bench.Absent{}) {
		want := tests[trial.Concurrency]
		if mustLinger(trial.Point, limits) != want.linger || !strings.HasPrefix(trial.SkipReason, want.skipReason) ||
			(want.skipReason == "") != (trial.SkipReason == "") {
			t.Errorf("%d connections: linger %v, skip reason %q; want %v, %q", trial.Concurrency,
				mustLinger(trial.Point, limits), trial.SkipReason, want.linger, want.skipReason)
		}
		if mustLinger(trial.Point, roomy) || crowdSkipReason(trial.Point, roomy) != "" {
			t.Errorf("%d connections: limits that are not known bound them", trial.Concurrency)
		}
	}
	// On machines, each server's kernel only has its own connections.
	form.Remote = true
	for _, trial := range bench.Plan(form, limits, bench.Absent{}) {
		if mustLinger(trial.Point, limits) || trial.SkipReason != "" {
			t.Errorf("%d connections to 25 machines: linger %v, skip reason %q", trial.Concurrency,
				mustLinger(trial.Point, limits), trial.SkipReason)
		}
	}
}
