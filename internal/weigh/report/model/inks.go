// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
)

// NewPalette gives known subjects their fixed inks, and other subjects the remaining inks, in order of appearance.
func NewPalette(sections []*Section) *chart.Palette {
	var claims []chart.Claim
	for _, s := range sections {
		for _, name := range s.Subjects {
			i, ok := usualInk(name)
			switch {
			case name == s.Baseline:
				i, ok = chart.InkBaseline, true
			case i == chart.InkBaseline && name != s.Kind.Expected:
				ok = false // the baseline's ink belongs to another subject
			}
			claims = append(claims, chart.Claim{Name: name, Usual: ok, Ink: i})
		}
	}
	return chart.NewPalette(claims)
}

// usualInk returns the ink of a subject that has a fixed one.
func usualInk(subject string) (chart.Ink, bool) {
	switch subject {
	case BaselineSubject, EmptySubject:
		return chart.InkBaseline, true
	case ProxySubject:
		return chart.InkOrange, true
	case swapSubject:
		return chart.InkPurple, true
	}
	if strings.HasPrefix(subject, OwnPrefix) {
		if strings.HasSuffix(subject, "-tc") {
			return chart.InkGreen, true
		}
		if strings.HasSuffix(subject, "-xdp") {
			return chart.InkBlue, true
		}
	}
	return 0, false
}

// FlowInks tell numbers of flows apart, from few to many.
var FlowInks = []chart.Ink{chart.InkSky, chart.InkBlue, chart.InkPurple, chart.InkVermillion}
