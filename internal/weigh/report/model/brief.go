// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
)

// briefItems is how many items of a list a short sentence has.
const briefItems = 3

// Brief makes one or two short sentences of a verdict: missed targets before those that hold, and lists cut short.
func Brief(sentences []string, prefix string) []string {
	sentences = slices.DeleteFunc(slices.Clone(sentences), func(s string) bool {
		return strings.HasPrefix(strings.TrimPrefix(s, prefix), saturatedWords)
	})
	if len(sentences) == 0 {
		return []string{"The tables below show what was measured; there is nothing to hold it against."}
	}
	slices.SortStableFunc(sentences, func(a, b string) int { return OneIf(MissedTargets(b)) - OneIf(MissedTargets(a)) })
	var out []string
	for _, sentence := range sentences[:min(2, len(sentences))] {
		items := strings.Split(strings.TrimSuffix(sentence, "."), "; ")
		out = append(out, strings.Join(AtMost(items, briefItems), "; ")+".")
	}
	return out
}

// MissedTargets reports whether a sentence is about targets that are missed.
func MissedTargets(s string) bool { return strings.Contains(s, "argets that are missed") }

// AtMost keeps the first of many words, and says how many there are more.
func AtMost(words []string, most int) []string {
	if len(words) <= most+1 {
		return words
	}
	return append(slices.Clip(words[:most]), fmt.Sprintf("%d more", len(words)-most))
}

// MaxListed is the greatest number of balancers that an answer names of those that cannot be told apart, or of others
// of a kind.
const MaxListed = 3
