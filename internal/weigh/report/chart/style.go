// SPDX-License-Identifier: Apache-2.0

package chart

import (
	_ "embed"
	"image/color"
	"sync"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/jeoul/jeoul/internal/text/packed"
)

// Sizes in pixels.
const (
	fontSize    = 11.5
	tickSize    = 10.5
	rowHeight   = 23
	headHeight  = 28
	barWidth    = 13
	dotRadius   = 4.2
	axisHeight  = 44
	titleHeight = 30
	gap         = 8
	// labelSlack is the greatest ratio of the width of a reader's font to the width of the font that texts are measured
	// with.
	labelSlack = 1.16
	// minimumSpan is the smallest range of an axis around a reference, so that the axis does not magnify negligible
	// differences.
	minimumSpan = 10
	// narrow is the width under which labels stand above their bars.
	narrow      = 440
	widestLabel = 0.42 // of the chart's width
	labelHeight = 15
)

// anchor is the part of a text that stands at the text's place.
type anchor int

const (
	atStart anchor = iota
	atMiddle
	atEnd
)

// style returns a text style. gonum measures with Liberation Sans, which is as wide as Arial; the page's CSS then picks
// the reader's own font.
//
// The SVG must anchor texts itself, because the reader's font has other widths: the thousandths of the size encode the
// anchor, and every text is drawn as if it began at its place.
func style(size float64, i Ink, bold bool, a anchor) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size) + vg.Length(a)/1000}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{
		Color:   i.color(),
		Font:    f,
		XAlign:  draw.XLeft,
		YAlign:  draw.YCenter,
		Handler: text.Plain{Fonts: fonts()},
	}
}

// fill writes text whose middle is at y.
func fill(dc draw.Canvas, s text.Style, x, y vg.Length, label string) {
	if label == "" {
		return
	}
	// gonum centres the line's box; letters without descenders look too high.
	dc.FillText(s, vg.Point{X: x, Y: y + 1}, label)
}

func circle(dc draw.Canvas, c color.Color, x, y, radius vg.Length) {
	dc.DrawGlyph(draw.GlyphStyle{Color: c, Radius: radius, Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: y})
}

// Font is the reader's own interface font.
const Font = `system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif`

// The fonts that texts are measured with, without outlines: see scripts/fontmetrics.
var (
	//go:embed regular.ttf.gz
	regularFont []byte
	//go:embed bold.ttf.gz
	boldFont []byte
)

// fonts are the fonts that texts are measured with. gonum's own collection has all twelve of the family.
var fonts = sync.OnceValue(func() *font.Cache {
	var all font.Collection
	for weight, data := range map[xfont.Weight][]byte{
		xfont.WeightNormal: regularFont, xfont.WeightBold: boldFont,
	} {
		data, err := packed.Read(data)
		if err != nil {
			panic(err) // embedded
		}
		face, err := opentype.Parse(data)
		if err != nil {
			panic(err) // embedded
		}
		all = append(all, font.Face{Font: font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight},
			Face: face})
	}
	return font.NewCache(all)
})
