// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"image/color"
	"strings"
)

// ink is a colour by its place in inks. Charts are drawn with stand-in colours
// that become CSS variables afterwards, so that one picture follows the
// reader's light or dark scheme.
type ink uint8

// The inks that charts ask for by name.
const (
	inkText ink = iota
	inkQuiet
	inkGrid
	inkPaper
	inkBack
	inkBaseline
	inkOrange
	inkBlue
	inkGreen
	inkPurple
	inkVermillion
	inkSky
	inkYellow
)

// inks gives each its CSS variable and its colour on light and on dark paper.
// The hues are those of Okabe and Ito ("Color Universal Design", 2008), which
// readers with the common colour vision deficiencies can tell apart; they are
// lightened for dark paper, and yellow is darkened for light paper.
var inks = [...]struct{ name, light, dark string }{
	inkText:       {"ink", "#1b2430", "#e8ecf1"},
	inkQuiet:      {"quiet", "#5a6675", "#9ba8b8"},
	inkGrid:       {"grid", "#e3e7ec", "#2c3542"},
	inkPaper:      {"paper", "#ffffff", "#161b22"},
	inkBack:       {"back", "#f5f6f8", "#0d1117"},
	inkBaseline:   {"c-baseline", "#8b95a1", "#7f8b99"},
	inkOrange:     {"c-orange", "#e69f00", "#eeb031"},
	inkBlue:       {"c-blue", "#0072b2", "#4ba6e3"},
	inkGreen:      {"c-green", "#009e73", "#2fc298"},
	inkPurple:     {"c-purple", "#cc79a7", "#dc98bf"},
	inkVermillion: {"c-vermillion", "#d55e00", "#f08445"},
	inkSky:        {"c-sky", "#56b4e9", "#86cdf5"},
	inkYellow:     {"c-yellow", "#c5b400", "#f0e442"},
}

// color returns the stand-in colour.
func (i ink) color() color.Color { return color.NRGBA{R: 1, G: 2, B: uint8(i), A: 255} }

// standIn is how the SVG writer spells the stand-in colour.
func (i ink) standIn() string { return fmt.Sprintf("#0102%02X", uint8(i)) }

// Variable returns the ink as a CSS value.
func (i ink) Variable() string { return "var(--" + inks[i].name + ")" }

// declarations returns the CSS that gives every ink its colour.
func declarations(dark bool) string {
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
