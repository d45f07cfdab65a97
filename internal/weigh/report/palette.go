// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
)

// palette gives every subject of a run its ink, the same in all charts.
type palette struct{ of map[string]ink }

// newPalette gives the subjects we know the inks they always have, and others
// what is left, in order of appearance.
func newPalette(sections []*section) *palette {
	p := &palette{of: map[string]ink{}}
	taken := map[ink]bool{}
	for _, s := range sections {
		for _, name := range s.Subjects {
			i, ok := usualInk(name)
			switch {
			case name == s.Baseline:
				i, ok = inkBaseline, true
			case i == inkBaseline && !s.isPackets():
				ok = false // it is another's here
			}
			if ok && !taken[i] {
				p.of[name], taken[i] = i, true
			}
		}
	}
	spare := []ink{inkPurple, inkSky, inkVermillion, inkYellow, inkGreen, inkOrange, inkBlue}
	next := 0
	for _, s := range sections {
		for _, name := range s.Subjects {
			if _, ok := p.of[name]; ok {
				continue
			}
			for range spare {
				if !taken[spare[next%len(spare)]] {
					break
				}
				next++
			}
			// With more subjects than inks, inks are shared; every bar is labelled.
			i := spare[next%len(spare)]
			p.of[name], taken[i] = i, true
			next++
		}
	}
	return p
}

// usualInk returns the ink of a subject that has a fixed one.
func usualInk(subject string) (ink, bool) {
	switch subject {
	case baselineSubject, emptySubject:
		return inkBaseline, true
	case proxySubject:
		return inkOrange, true
	case swapSubject:
		return inkPurple, true
	}
	if strings.HasPrefix(subject, ownPrefix) {
		if strings.HasSuffix(subject, "-tc") {
			return inkGreen, true
		}
		if strings.HasSuffix(subject, "-xdp") {
			return inkBlue, true
		}
	}
	return 0, false
}

func (p *palette) subject(name string) ink { return p.of[name] }
