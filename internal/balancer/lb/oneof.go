// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"slices"
	"strings"
)

// oneOf sets a word that is written as one of those that there are; anything else is the error unknown.
func oneOf[W ~string](to *W, text []byte, all []W, unknown error) error {
	if !slices.Contains(all, W(text)) {
		return fmt.Errorf("%w %q: use one of %s", unknown, text, list(all))
	}
	*to = W(text)
	return nil
}

// list returns words with commas between them.
func list[W ~string](words []W) string {
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = string(word)
	}
	return strings.Join(names, ", ")
}
