// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	// svgHead matches the writer's head before the drawing.
	svgHead = regexp.MustCompile(`(?s)^.*?<svg[^>]*>\s*`)
	// svgFace matches the writer's spelling of the font that texts were measured with.
	svgFace = regexp.MustCompile(`font-family:[^;]*;font-variant:normal;font-weight:(normal|bold);font-style:normal;`)
	// svgAnchor matches a font size that encodes an anchor.
	svgAnchor = regexp.MustCompile(`font-size:(\d+(?:\.[1-9])?)\.?0*([12])px`)
	// svgInk matches a stand-in colour.
	svgInk = regexp.MustCompile(`#0102([0-9A-F]{2})`)
)

// drawing draws on a canvas of the given size in pixels and returns the SVG
// elements, their colours turned into CSS variables.
func drawing(width, height float64, paint func(draw.Canvas)) string {
	canvas := vgsvg.NewWith(vgsvg.UseWH(vg.Length(width), vg.Length(height)))
	paint(draw.New(canvas))
	var buf bytes.Buffer
	// Writing to a buffer in memory does not fail.
	_, _ = canvas.WriteTo(&buf)
	s := svgHead.ReplaceAllString(buf.String(), "")
	s = strings.TrimSuffix(strings.TrimSpace(s), "</svg>")
	s = svgFace.ReplaceAllStringFunc(s, func(f string) string {
		if strings.Contains(f, "bold") {
			return "font-weight:600;"
		}
		return ""
	})
	s = svgAnchor.ReplaceAllStringFunc(s, func(f string) string {
		parts := svgAnchor.FindStringSubmatch(f)
		return fmt.Sprintf("font-size:%spx;text-anchor:%s", parts[1],
			map[string]string{"1": "middle", "2": "end"}[parts[2]])
	})
	return svgInk.ReplaceAllStringFunc(s, func(c string) string {
		for i := range inks {
			if Ink(i).standIn() == c {
				return Ink(i).Variable()
			}
		}
		return c
	})
}

// Inline returns a chart as an SVG element for an HTML page, which styles it.
func (c *Chart) Inline(width float64, class string) string {
	h := c.height(width)
	return fmt.Sprintf(`<svg class="%s" viewBox="0 0 %g %g" width="%g" role="img" aria-label="%s">%s</svg>`,
		class, width, h, width, html.EscapeString(c.Axis), drawing(width, h, c.draw))
}
