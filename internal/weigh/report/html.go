// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

//go:embed assets/report.gohtml
var pageTemplate string

//go:embed assets/report.css
var pageStyle string

//go:embed assets/report.js
var pageScript string

// Widths at which a page's charts are drawn, in pixels.
const (
	wideChart   = 544
	narrowChart = 400
)

// HTML writes the report as one page that needs nothing else: styles, script
// and charts are inside, and its content security policy forbids to load
// anything. The error is w's.
func HTML(w io.Writer, run *results.Run) error { return writeHTML(w, English, run) }

func writeHTML(w io.Writer, language Language, run *results.Run) error {
	words := language.words()
	d := newDocument(run)
	words.document(d)
	page, err := template.New("report").Funcs(template.FuncMap{"t": words.text}).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("parsing the report's page: %w", err)
	}
	var buf bytes.Buffer
	if err := page.Execute(&buf, newPage(d, language)); err != nil {
		return fmt.Errorf("filling the report's page: %w", err)
	}
	_, err = w.Write(buf.Bytes())
	return err
}

// page is what the template reads.
type page struct {
	*document
	Language Language
	Policy   string
	Style    template.CSS
	Script   template.JS
	Loads    []pageLoad
}

type pageLoad struct {
	loadPart
	Figures []pageFigure
}

type pageFigure struct {
	Title, Caption string
	// Wide and Narrow are drawn by this package, which escapes the texts in them.
	Wide, Narrow template.HTML
}

func newPage(d *document, language Language) page {
	style := fmt.Sprintf(":root{color-scheme:light;%s}@media(prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;%s}}:root[data-theme=dark]{color-scheme:dark;%s}\n%s",
		declarations(false), declarations(true), declarations(true), pageStyle)
	p := page{
		document: d,
		Language: language,
		Policy: fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src '%s'; base-uri 'none'; form-action 'none'",
			integrity(pageScript)),
		Style:  template.CSS(style),
		Script: template.JS(pageScript),
	}
	sections := make([]*section, 0, len(d.Loads))
	for _, l := range d.Loads {
		sections = append(sections, l.section)
	}
	colours, words := newPalette(sections), language.words()
	for _, l := range d.Loads {
		pl := pageLoad{loadPart: l}
		for _, f := range words.figures(figures(l.section, colours)) {
			pl.Figures = append(pl.Figures, pageFigure{
				Title:   f.Title,
				Caption: f.Caption,
				Wide:    template.HTML(f.chart.inline(wideChart, "wide")),
				Narrow:  template.HTML(f.chart.inline(narrowChart, "narrow")),
			})
		}
		p.Loads = append(p.Loads, pl)
	}
	return p
}

// integrity returns the hash by which a policy allows one inline script.
func integrity(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Ink returns the card's colour for a style attribute.
func (c card) Ink() template.CSS { return template.CSS(c.ink.Variable()) }
