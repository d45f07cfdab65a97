// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
)

// difference returns a difference of a source that has services of the names of there, and notes in there which
// services are there afterwards.
func difference(random *rand.Rand, there map[int]bool) string {
	var text strings.Builder
	text.WriteString("services:\n")
	gone := -1
	for name := range there {
		if len(there) > 2 && random.IntN(4) == 0 {
			gone = name
		}
		break
	}
	put := random.IntN(6)
	for put == gone {
		put = random.IntN(6)
	}
	mode := []string{"l2dsr", "ipip", "gue"}[random.IntN(3)]
	check := []string{"", "check: icmp, ", "check: icmp, panic: 60%, "}[random.IntN(3)]
	fmt.Fprintf(&text, "  - {name: s%d, vip: 192.0.2.11%d, port: 80, mode: %s, %sbackends: [", put, put, mode, check)
	first := 1 + 4*random.IntN(2)
	for j := range 1 + random.IntN(4) {
		fmt.Fprintf(&text, "{name: b%d, address: 192.0.2.%d, weight: %d},", j, first+j, 1+random.IntN(2))
	}
	text.WriteString("]}\n")
	there[put] = true
	if gone >= 0 {
		fmt.Fprintf(&text, "remove: [s%d]\n", gone)
		delete(there, gone)
	}
	return text.String()
}

// turn gives new verdicts on some of the backends.
func (c *checks) turn(random *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(c.wanted), func(a, b lb.BackendKey) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	}) {
		if random.IntN(3) == 0 {
			c.verdicts[key] = []lb.Verdict{healthy(), failing("refused")}[random.IntN(2)]
			c.changed[key] = true
		}
	}
	signal(c.changes)
}

// TestDifferencesMakeTheWhole: however a configuration has come about by differences, and verdicts have changed
// meanwhile, the data plane has the same state as of the whole text.
func TestDifferencesMakeTheWhole(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c, asked := watched(w, web)
			w.answer("192.0.2.5", "192.0.2.6", "192.0.2.8")
			stop := w.run(c)
			random, there := rand.New(rand.NewPCG(seed, 0)), map[int]bool{}
			for range 12 {
				text := difference(random, there)
				var whole *config.Config
				asked.turn(random)
				err := c.Replace(t.Context(), func() (made *config.Config, err error) {
					made, _, err = c.view.Config.Amend(config.Source{Name: "kube", Data: []byte(text)})
					whole = made
					return made, err
				})
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				time.Sleep(settleDelay)
				synctest.Wait()
				l := view.NewLayout(whole)
				want := view.New(l, nil, c.knownPaths(l, c.links, nil), c.verdictsFor(l, nil), nil, nil, time.Now())
				compareViews(t, text, c.view, want)
				compareWithFresh(t, c, l, random)
			}
			w.done()
			stop()
		})
	}
}

// compareWithFresh compares a view that follows the controller's, by other verdicts, ejections and operations, with one
// that follows none.
func compareWithFresh(t *testing.T, c *Controller, l *view.Layout, random *rand.Rand) {
	t.Helper()
	verdicts := c.verdictsFor(l, nil)
	overlays, ejections := map[view.BackendName]view.Overlay{}, map[lb.BackendKey]outliers.Ejection{}
	for i, s := range l.Config.Services {
		for j, b := range s.Backends {
			switch random.IntN(8) {
			case 0:
				if s.Checks.On() {
					verdicts[i][j] = view.VerdictOf(failing("reset"))
				}
			case 1:
				ejections[s.BackendKey(b)] = outliers.Ejection{Reason: "answers"}
			case 2:
				overlays[view.BackendName{Service: s.Name, Backend: b.Name}] = view.Overlay{Drain: &ops.Drained{}}
			}
		}
	}
	make := func(previous *view.View) *view.View {
		return view.New(l, overlays, c.knownPaths(l, c.links, nil), verdicts, ejections, previous, time.Now())
	}
	compareViews(t, fmt.Sprintf("%+v, %+v", overlays, ejections), make(c.view), make(nil))
}

// compareViews fails unless the data plane has the same of both.
func compareViews(t *testing.T, what string, is, as *view.View) {
	t.Helper()
	got, want := is.DataPlaneState(), as.DataPlaneState()
	if len(got.Services) != len(want.Services) {
		t.Fatalf("%s: %+v; want %+v", what, got, want)
	}
	for i := range got.Services {
		is, as := &got.Services[i], &want.Services[i]
		if !is.Same(as) || !reflect.DeepEqual(is.Service, as.Service) {
			t.Fatalf("%s: %+v; want %+v", what, is, as)
		}
	}
	if !reflect.DeepEqual(is.Verdicts, as.Verdicts) || !reflect.DeepEqual(is.Selected, as.Selected) {
		t.Fatalf("%s: selected %+v by %+v; want %+v by %+v", what, is.Selected, is.Verdicts, as.Selected, as.Verdicts)
	}
}
