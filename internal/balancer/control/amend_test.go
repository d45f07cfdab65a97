// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
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
	fmt.Fprintf(&text, "  - {name: s%d, vip: 192.0.2.11%d, port: 80, mode: %s, backends: [", put, put, mode)
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

// TestDifferencesMakeTheWhole: however a configuration has come about by differences, the data plane has the same state
// as of the whole text.
func TestDifferencesMakeTheWhole(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			w, c, stop := running(t, web, "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.5", "192.0.2.6", "192.0.2.8")
			random, there := rand.New(rand.NewPCG(seed, 0)), map[int]bool{}
			for range 12 {
				text := difference(random, there)
				var whole *config.Config
				err := c.Replace(t.Context(), func() (made *config.Config, err error) {
					made, _, err = c.view.Config.Amend(config.Source{Name: "kube", Data: []byte(text)})
					whole = made
					return made, err
				})
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				time.Sleep(settle)
				synctest.Wait()
				l := view.NewLayout(whole)
				want := view.New(l, nil, c.known(l, c.links, nil), c.verdictsFor(l), nil, nil, time.Now()).Packets()
				got := c.view.Packets()
				if len(got.Services) != len(want.Services) {
					t.Fatalf("%s: %+v; want %+v", text, got, want)
				}
				for i := range got.Services {
					is, as := &got.Services[i], &want.Services[i]
					if !is.Same(as) || !reflect.DeepEqual(is.Service, as.Service) {
						t.Fatalf("%s: %+v; want %+v", text, is, as)
					}
				}
			}
			w.done()
			stop()
		})
	}
}
