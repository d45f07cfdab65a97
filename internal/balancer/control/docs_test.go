// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testdocs"
)

// TestKeysThatNeedRestartAreDocumented: the guide's table has each key that a reload refuses to change.
func TestKeysThatNeedRestartAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(testdocs.Root(t), "docs/guides/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| Needs a restart |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for i, word := range strings.Split(table, "`") {
		if i%2 == 1 {
			documented = append(documented, word)
		}
	}
	one, other := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.1:2")
	var before, after config.Config
	for _, cfg := range []*config.Config{&before, &after} {
		parsed, err := config.Parse("f", []byte(web))
		if err != nil {
			t.Fatal(err)
		}
		*cfg = *parsed
	}
	after.Socket, after.Survive, after.Orphan = "/s", config.SurviveNever, time.Minute
	after.Metrics.Listen, after.Metrics.Backends, after.API.Listen = one, 1, one
	after.Flows.Limit, after.Flows.Unproven = 1, 1
	after.Flows.Timeouts = lb.Timeouts{Opening: 1, First: 1, Established: 1, UDP: 1, Fin: 1, Closed: 1}
	after.Members.Listen = one
	problems := checkReload(&before, &after)
	before.Members = lb.MembersConfig{Listen: one, FlowsPort: 3}
	for _, m := range []lb.MembersConfig{{Listen: other, FlowsPort: 3}, {Listen: one, FlowsPort: 4},
		{Listen: one, FlowsPort: 3, Name: "a"}, {Listen: one, FlowsPort: 3, HandOver: true}} {
		after.Members = m
		problems = append(problems, checkReload(&before, &after)...)
	}
	if len(problems) < 15 {
		t.Errorf("only %d keys are refused: %v", len(problems), problems)
	}
	for _, p := range problems {
		if !slices.ContainsFunc(documented, func(key string) bool {
			return p.Field == key || key == "flows.timeouts" && strings.HasPrefix(p.Field, key+".")
		}) {
			t.Errorf("%s is not in the table", p.Field)
		}
	}
}
