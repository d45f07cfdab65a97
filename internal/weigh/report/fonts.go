// SPDX-License-Identifier: Apache-2.0

package report

import (
	"sync"

	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot/font"
)

// fonts are those that texts are measured with. gonum's own collection has all twelve of the family.
var fonts = sync.OnceValue(func() *font.Cache {
	var all font.Collection
	for weight, data := range map[xfont.Weight][]byte{xfont.WeightNormal: liberationsansregular.TTF, xfont.WeightBold: liberationsansbold.TTF} {
		face, err := opentype.Parse(data)
		if err != nil {
			panic(err) // embedded
		}
		all = append(all, font.Face{Font: font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight}, Face: face})
	}
	return font.NewCache(all)
})
