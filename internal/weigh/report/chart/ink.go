// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"image/color"
	"strings"
)

// Ink is a colour by its place in inks. Charts are drawn with stand-in colours
// that become CSS variables afterwards, so that one picture follows the
// reader's light or dark scheme.
type Ink uint8

// The inks that charts ask for by name.
const (
	InkText Ink = iota
	InkQuiet
	InkGrid
	InkPaper
	InkBack
	InkBaseline
	InkOrange
	InkBlue
	InkGreen
	InkPurple
	InkVermillion
	InkSky
	InkYellow
)

// inks gives each ink its CSS variable and its colour on light and on dark paper. The hues are those of Okabe and Ito
// ("Color Universal Design", 2008), which readers with the common colour vision deficiencies can tell apart. They are
// lightened for dark paper, and yellow is darkened for light paper.
var inks = [...]struct{ name, light, dark string }{
	InkText:       {"ink", "#1b2430", "#e8ecf1"},
	InkQuiet:      {"quiet", "#5a6675", "#9ba8b8"},
	InkGrid:       {"grid", "#e3e7ec", "#2c3542"},
	InkPaper:      {"paper", "#ffffff", "#161b22"},
	InkBack:       {"back", "#f5f6f8", "#0d1117"},
	InkBaseline:   {"c-baseline", "#8b95a1", "#7f8b99"},
	InkOrange:     {"c-orange", "#e69f00", "#eeb031"},
	InkBlue:       {"c-blue", "#0072b2", "#4ba6e3"},
	InkGreen:      {"c-green", "#009e73", "#2fc298"},
	InkPurple:     {"c-purple", "#cc79a7", "#dc98bf"},
	InkVermillion: {"c-vermillion", "#d55e00", "#f08445"},
	InkSky:        {"c-sky", "#56b4e9", "#86cdf5"},
	InkYellow:     {"c-yellow", "#c5b400", "#f0e442"},
}

// color returns the stand-in colour.
func (i Ink) color() color.Color { return color.NRGBA{R: 1, G: 2, B: uint8(i), A: 255} }

// standIn returns the SVG writer's spelling of the stand-in colour.
func (i Ink) standIn() string { return fmt.Sprintf("#0102%02X", uint8(i)) }

// Variable returns the ink as a CSS value.
func (i Ink) Variable() string { return "var(--" + inks[i].name + ")" }

// Declarations returns the CSS that gives every ink its colour.
func Declarations(dark bool) string {
	var b strings.Builder
	for _, i := range inks {
		value := i.light
		if dark {
			value = i.dark
		}
		fmt.Fprintf(&b, "--%s:%s;", i.name, value)
	}
	return b.String()
}
