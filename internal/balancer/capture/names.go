// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/text/nearest"
)

// OutcomeBits returns a bit for each of the data plane's outcomes, at its place in names, that one of the words is
// the name of, or the beginning of the name of before a "_". No words stand for all. Error: ErrBadRequest.
func OutcomeBits(words, names []string) (bits uint64, err error) {
	if len(words) == 0 {
		return ^uint64(0), nil
	}
	for _, word := range words {
		var found uint64
		for number, name := range names {
			if name == word || strings.HasPrefix(name, word+"_") {
				found |= 1 << number
			}
		}
		if found == 0 {
			return 0, unknownOutcome(word, names)
		}
		bits |= found
	}
	return bits, nil
}

// unknownOutcome says which outcomes there are.
func unknownOutcome(word string, names []string) error {
	var known []string
	for _, name := range names {
		group, _, _ := strings.Cut(name, "_")
		known = append(known, group, name)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	return fmt.Errorf("%w: there is no outcome %q%s; use %s", ErrBadRequest, word, hint(word, known),
		strings.Join(known, ", "))
}

// mostListed bounds a list of names that a person is to read.
const mostListed = 20

// Missing says that there is no service or backend of a name, and which there are: ErrNoService.
func Missing(what, name string, names []string) error {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > mostListed {
		more = fmt.Sprintf(", and %d more", len(names)-mostListed)
	}
	return fmt.Errorf("%w: no %s is named %q%s; there are: %s%s", ErrNoService, what, name, hint(name, names),
		strings.Join(names[:min(len(names), mostListed)], ", "), more)
}

// hint is the name that a misspelt word may stand for.
func hint(word string, names []string) string {
	if near := nearest.Word(word, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
