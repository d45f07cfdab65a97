// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// titleOf describes the load in words: by the title of a kind that has one, otherwise by its name after the name of a
// kind that reports it.
func titleOf(s *Section, registered []Registration) string {
	name := ""
	for _, r := range registered {
		if r.Of(s) == nil {
			continue
		}
		if title, ok := r.Titles[s.Load]; ok {
			return title
		}
		name = cmp.Or(name, r.Name)
	}
	if name == "" {
		return wording.Clean(s.Load)
	}
	return name + ": " + wording.Clean(s.Load)
}

// kindOf returns the kind of the first registration that recognizes the load.
func kindOf(s *Section, registered []Registration) *Kind {
	for _, r := range registered {
		if k := r.Of(s); k != nil {
			return k
		}
	}
	return &Kind{Question: "what does each do", Sheets: func(*Section) []Sheet { return nil },
		Verdict: func(*Section) []string { return nil }}
}

// HasParam reports whether trials of the section have a parameter.
func (s *Section) HasParam(name string) bool {
	return slices.ContainsFunc(s.Trials, func(t results.Trial) bool { return t.Params[name] != nil })
}
