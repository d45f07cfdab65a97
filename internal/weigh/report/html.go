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

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

//go:embed assets/report.gohtml
var pageTemplate string

//go:embed assets/report.css
var pageStyle string

//go:embed assets/report.js
var pageScript string

func writeHTML(w io.Writer, words *translator, run *results.Run) error {
	d := newDocument(run)
	words.document(d)
	page, err := template.New("report").Funcs(template.FuncMap{"t": words.text}).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("parsing the report's page: %w", err)
	}
	var buf bytes.Buffer
	if err := page.Execute(&buf, newPage(d, words)); err != nil {
		return fmt.Errorf("filling the report's page: %w", err)
	}
	_, err = w.Write(buf.Bytes())
	return err
}

// page has the fields of the template.
type page struct {
	*document
	Language string
	Policy   string
	// Picture is the overview's.
	Picture *pageFigure
	Style   template.CSS
	Script  template.JS
	Loads   []pageLoad
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

func newPage(d *document, words *translator) page {
	style := fmt.Sprintf(
		":root{color-scheme:light;%s}@media(prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;%s}}:root[data-theme=dark]{color-scheme:dark;%s}\n%s",
		chart.Declarations(false), chart.Declarations(true), chart.Declarations(true), pageStyle)
	p := page{
		document: d,
		Language: words.language,
		Policy: fmt.Sprintf(
			"default-src 'none'; style-src 'unsafe-inline'; script-src '%s'; base-uri 'none'; form-action 'none'",
			integrity(pageScript)),
		Style:  template.CSS(style),
		Script: template.JS(pageScript),
	}
	sections := make([]*model.Section, 0, len(d.Loads))
	for _, l := range d.Loads {
		sections = append(sections, l.section)
	}
	if f := d.Overview.Picture; f != nil {
		picture := drawn(*f)
		p.Picture = &picture
	}
	colours := model.NewPalette(sections)
	for _, l := range d.Loads {
		pl := pageLoad{loadPart: l}
		for _, f := range words.figures(model.Figures(l.section, colours)) {
			pl.Figures = append(pl.Figures, drawn(f))
		}
		p.Loads = append(p.Loads, pl)
	}
	return p
}

// drawn draws a figure for wide and for narrow pages.
func drawn(f chart.Figure) pageFigure {
	return pageFigure{
		Title:   f.Title,
		Caption: f.Caption,
		Wide:    template.HTML(f.Chart.Inline(chart.WideWidth, "wide")),
		Narrow:  template.HTML(f.Chart.Inline(chart.NarrowWidth, "narrow")),
	}
}

// integrity returns the hash by which a policy allows one inline script.
func integrity(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
