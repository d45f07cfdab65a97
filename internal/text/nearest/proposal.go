// SPDX-License-Identifier: Apache-2.0

package nearest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxProposed is the maximum number of proposed names.
const maxProposed = 3

// Proposal proposes names for a name that does not exist, as a part of an error: the names that differ little, or all
// names if there are few. Otherwise it says that list shows them.
func Proposal(name string, names []string, list string) string {
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
		if len(names) > 2*maxProposed {
			return list + " lists those there are"
		}
		return "there is " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
	}
	var proposed []string
	for _, c := range candidates[:min(len(candidates), maxProposed)] {
		proposed = append(proposed, c.name)
	}
	return "did you mean " + strings.Join(proposed, " or ") + "?"
}
