// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"slices"
)

// reading returns the explanations that a reader needs to judge the figures.
func reading(sections []*model.Section, published bool) []model.Paragraph {
	var out []model.Paragraph
	add := func(all ...model.Paragraph) {
		for _, p := range all {
			if !slices.Contains(out, p) { // several loads may be of one kind
				out = append(out, p)
			}
		}
	}
	for _, first := range []bool{true, false} {
		for _, s := range sections {
			if s.Kind.OfRepeats && s.Kind.ReadFirst == first {
				add(s.Kind.Reading...)
			}
		}
	}
	if len(out) > 0 {
		add(spreadReading)
	}
	if published {
		add(publishedReading)
	}
	for _, s := range sections {
		if !s.Kind.OfRepeats {
			add(s.Kind.Reading...)
		}
	}
	return out
}

var spreadReading = model.Paragraph{Head: "Medians and certainty",
	Text: "Repeats of different subjects are interleaved, so a slow minute of the machine touches all of them. The ratio of two subjects is estimated from the pairs that each repeat makes (Hodges and Lehmann; of fewer than six pairs, their geometric mean), with the interval of Wilcoxon's signed-rank test (or Student's). Two subjects are told apart where the interval is all on one side of 1."}

var publishedReading = model.Paragraph{Head: "Published figures",
	Text: "They are a document's, measured on other machines: shapes compare, numbers do not. Its latency may mean something else, too; ours is what clients waited."}
