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
	return fmt.Errorf("%w: there is no outcome %q%s; use %s", ErrBadRequest, word, suggest(word, known),
		strings.Join(known, ", "))
}

// maxListed bounds a list of names that a person is to read.
const maxListed = 20

// NotFound says that there is no service or backend of a name, and which there are: ErrNoService.
func NotFound(what, name string, names []string) error {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > maxListed {
		more = fmt.Sprintf(", and %d more", len(names)-maxListed)
	}
	return fmt.Errorf("%w: no %s is named %q%s; there are: %s%s", ErrNoService, what, name, suggest(name, names),
		strings.Join(names[:min(len(names), maxListed)], ", "), more)
}

// suggest is the name that a misspelt word may stand for.
func suggest(word string, names []string) string {
	if near := nearest.Word(word, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
