// SPDX-License-Identifier: Apache-2.0

package chart

// Palette gives every name its ink, the same in all charts.
type Palette struct{ of map[string]Ink }

// Claim is a name, and the ink that it usually has, if any.
type Claim struct {
	Name  string
	Usual bool
	Ink   Ink
}

// NewPalette gives names the inks that they usually have. Where several names claim an ink, the first gets it. Other
// names get the remaining inks, in order of appearance.
func NewPalette(claims []Claim) *Palette {
	p := &Palette{of: map[string]Ink{}}
	taken := map[Ink]bool{}
	for _, c := range claims {
		if c.Usual && !taken[c.Ink] {
			p.of[c.Name], taken[c.Ink] = c.Ink, true
		}
	}
	spare := []Ink{InkPurple, InkSky, InkVermillion, InkYellow, InkGreen, InkOrange, InkBlue}
	next := 0
	for _, c := range claims {
		if _, ok := p.of[c.Name]; ok {
			continue
		}
		for range spare {
			if !taken[spare[next%len(spare)]] {
				break
			}
			next++
		}
		// With more names than inks, inks are shared; every bar is labelled.
		i := spare[next%len(spare)]
		p.of[c.Name], taken[i] = i, true
		next++
	}
	return p
}

// Ink is the ink of a name.
func (p *Palette) Ink(name string) Ink { return p.of[name] }
