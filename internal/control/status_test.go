// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/api"
)

func TestNearlyFull(t *testing.T) {
	for _, test := range []struct {
		proven, unproven uint64
		want             []string
	}{
		{0, 0, nil}, {89, 179, nil}, {90, 0, []string{"raise flows.limit"}}, {0, 180, []string{"SYN flood"}},
		{100, 200, []string{"100 flows are remembered of at most 100", "200 unproven flows are remembered of at most 200"}},
	} {
		got := nearlyFull(api.Flows{Proven: test.proven, ProvenLimit: 100, Unproven: test.unproven, UnprovenLimit: 200})
		if len(got) != len(test.want) || !slices.EqualFunc(got, test.want, strings.Contains) {
			t.Errorf("%d and %d: %q, want %q", test.proven, test.unproven, got, test.want)
		}
	}
}
