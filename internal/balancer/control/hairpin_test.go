// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestHairpinOfAService: mode nat has it by itself, another mode has not, and a key keeps it away. Who is
// near follows the link.
func TestHairpinOfAService(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want bool
	}{
		"nat":     {mode(lb.NAT), true},
		"not":     {strings.ReplaceAll(mode(lb.NAT), "mode: nat", "mode: nat\n    hairpin: false"), false},
		"another": {mode(lb.IPIP), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.found("192.0.2.1", 1)
				w.found("192.0.2.2", 2)
				c := w.controller(test.file)
				stop := w.run(c)
				defer func() {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}()
				w.quiet()
				status, err := c.Status()
				if err != nil {
					t.Fatal(err)
				}
				h := status.Services[0].Hairpin
				if (h != nil) != test.want {
					t.Fatalf("hairpin: %+v", h)
				}
				if h == nil {
					return
				}
				if !slices.Equal(h.Clients, prefixes("192.0.2.0/24")) || len(h.From) != 1 ||
					h.From[0] != netip.MustParseAddr("192.0.2.254") {
					t.Errorf("clients in %v are served from %v", h.Clients, h.From)
				}
				w.mu.Lock()
				w.links[0].Subnets = prefixes("192.0.2.0/25")
				w.mu.Unlock()
				w.linkChanges <- struct{}{}
				time.Sleep(settleDelay)
				w.expectNear(prefixes("192.0.2.0/25"))
			})
		})
	}
}

// expectNear waits until nothing happens any more, and compares the near clients on the first link.
func (w *world) expectNear(want []netip.Prefix) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if near := w.state.Hairpin.At(9); !slices.Equal(near, want) {
		w.t.Errorf("near clients are in %v, want %v", near, want)
	}
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}
