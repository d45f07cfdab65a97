// SPDX-License-Identifier: Apache-2.0

package control

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/api"
)

func TestNearlyFull(t *testing.T) {
	for _, test := range []struct {
		flows uint32
		warns bool
	}{{0, false}, {89, false}, {90, true}, {100, true}} {
		got := nearlyFull(api.FullNAT{Flows: test.flows, Limit: 100})
		if (got != "") != test.warns || test.warns && !strings.Contains(got, "fullnat.flows") {
			t.Errorf("%d of 100: %q", test.flows, got)
		}
	}
}
