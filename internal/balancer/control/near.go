// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// mostNear is how many names are proposed.
const mostNear = 3

// near proposes names for one that there is not: those that differ little, or all
// where there are few.
func near(name string, names []string) string {
	type candidate struct {
		name     string
		distance int
	}
	var candidates []candidate
	for _, n := range names {
		d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(n))
		if d <= max(2, len(name)/3) {
			candidates = append(candidates, candidate{n, d})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	if len(candidates) == 0 {
		if len(names) > 2*mostNear {
			return "`jeoul status` lists those there are"
		}
		return "there is " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
	}
	var list []string
	for _, c := range candidates[:min(len(candidates), mostNear)] {
		list = append(list, c.name)
	}
	return "did you mean " + strings.Join(list, " or ") + "?"
}
