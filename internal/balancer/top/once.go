// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Once reads the balancer twice, an interval apart, and prints the view: as JSON, or as text for a person.
func Once(ctx context.Context, options Options, to io.Writer, asJSON bool) error {
	return report(ctx, options, to, asJSON, 1)
}

// Report prints the view as text after each interval, until the context ends: for terminals that cannot place text.
func Report(ctx context.Context, options Options, to io.Writer) error {
	return report(ctx, options, to, false, 0)
}

// report prints so many times; 0: until the context ends.
func report(ctx context.Context, options Options, to io.Writer, asJSON bool, times int) error {
	model, err := New(options)
	if err != nil {
		return err
	}
	for n := 0; times == 0 || n <= times; n++ {
		if n > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(options.Interval):
			}
		}
		status, err := options.Balancer.Status(ctx)
		if err != nil {
			return err
		}
		at := options.Now()
		model.history.add(status, at)
		model.figures, model.known, model.now, model.readAt = newFigures(status, model.history, at), true, at, at
		model.updateTable()
		if n == 0 {
			continue
		}
		if asJSON {
			err = model.writeJSON(to)
		} else {
			err = model.writeText(to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// snapshot is a view for programs. Only the list of the view is there.
type snapshot struct {
	At time.Time `json:"at"`
	// Seconds is the time that rates are of.
	Seconds    float64       `json:"seconds"`
	Services   []serviceRow  `json:"services,omitempty"`
	Backends   []backendRow  `json:"backends,omitempty"`
	Drops      []dropRow     `json:"drops,omitempty"`
	Balancers  []balancerRow `json:"balancers,omitempty"`
	Limits     []limitRow    `json:"limits,omitempty"`
	Operations []ops.Overlay `json:"operations,omitempty"`
}

// shownDrops are the rows of the view of drops.
func (m Model) shownDrops() (rows []dropRow) {
	for _, i := range m.order {
		at := slices.IndexFunc(m.figures.drops, func(r dropRow) bool { return r.Name == m.table.id(i) })
		rows = append(rows, m.figures.drops[at])
	}
	return rows
}

// selectRows returns the rows that are shown, in order.
func selectRows[T any](rows []T, order []int) []T {
	picked := make([]T, 0, len(order))
	for _, i := range order {
		picked = append(picked, rows[i])
	}
	return picked
}

func (m Model) writeJSON(to io.Writer) error {
	samples := m.history.samples
	s := snapshot{At: m.now, Seconds: samples[len(samples)-1].at.Sub(samples[0].at).Seconds()}
	switch f := &m.figures; m.view {
	case Services:
		s.Services = selectRows(f.services, m.order)
	case Backends:
		s.Backends = selectRows(f.backends, m.order)
	case Drops:
		s.Drops = m.shownDrops()
	case Balancers:
		s.Balancers = selectRows(f.balancers, m.order)
	case Limits:
		s.Limits = selectRows(f.limits, m.order)
	case Changes:
		s.Operations = selectRows(f.status.Operations.InForce, m.order)
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// writeText prints all columns but sparklines, as wide as they are.
func (m Model) writeText(to io.Writer) error {
	m.width = 1 << 16
	lines := []string{
		strings.TrimRight(m.glyphs.clean(fmt.Sprintf("%s  %s", m.now.Local().Format(time.DateTime), m.summary())), " "),
	}
	if len(m.order) == 0 {
		lines = append(lines, m.table.empty)
	} else {
		t := *m.table
		t.columns = nil
		for _, c := range m.table.columns {
			if c.trend == nil {
				t.columns = append(t.columns, c)
			}
		}
		l := t.resolve(m.glyphs, m.order, m.width)
		lines = append(lines, l.titles(m.glyphs, sorting{}))
		for _, i := range m.order {
			lines = append(lines, l.plainLine(m.glyphs, i))
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(to, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// plainLine is a row without looks.
func (l layout) plainLine(g glyphs, i int) string {
	var parts []string
	for n, c := range l.columns {
		parts = append(parts, g.fit(g.clean(c.text(i)), l.widths[n], c.right))
	}
	return strings.Join(parts, strings.Repeat(" ", gap))
}
