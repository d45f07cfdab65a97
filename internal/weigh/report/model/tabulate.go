// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// Tabulate makes a table of the section's points that have a metric, in their groups.
func (s *Section) Tabulate(sh Sheet, metric string, fields []Field) []Sheet {
	of := map[*Point]string{}
	for i, g := range s.Groups {
		for _, p := range g.Points {
			of[p] = fmt.Sprint(i)
		}
	}
	return s.TabulateBy(sh, metric, func(p *Point) string { return of[p] }, fields)
}

// TabulateBy is Tabulate, but puts the points for which words returns the same text together, in the order of the
// first.
func (s *Section) TabulateBy(sh Sheet, metric string, words func(*Point) string, fields []Field) []Sheet {
	with := *s
	with.Groups = nil
	at := map[string]*Group{}
	for _, p := range s.Points() {
		if !p.Has(metric) {
			continue
		}
		key := words(p)
		if at[key] == nil {
			at[key] = &Group{}
			with.Groups = append(with.Groups, at[key])
		}
		at[key].Points = append(at[key].Points, p)
	}
	return sh.Of(&with, fields).List()
}

// PercentField shows a metric in per cent.
func PercentField(title, metric string) Field {
	return Fixed(MetricField(title, "%", metric), 2)
}
