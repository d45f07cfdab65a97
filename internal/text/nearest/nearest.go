// SPDX-License-Identifier: Apache-2.0

// Package nearest finds the word that a misspelt one most likely stands for.
package nearest

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxEdits is the maximum number of edits. With more, it is another word.
const maxEdits = 2

// Word returns the name that is nearest to a word, with at most two edits and ignoring the word's case, or "".
func Word(word string, names []string) string {
	best, distance := "", maxEdits+1
	for _, name := range names {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), name); d < distance {
			best, distance = name, d
		}
	}
	return best
}
