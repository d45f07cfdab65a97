// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// metricFamily is a family of a scrape, of at least one series.
type metricFamily struct {
	family
	// values are the values of its series, and at their rows.
	values []float64
	at     []int32
	rows   *rows
}

// rows are the labels of series, which the families that are made together have in common.
type rows struct {
	names  []string
	values [][]string
	// texts has the first n labels of each row as text, by n. They are made when the first family asks for them.
	texts map[int][]string
}

// series makes families, each with a series for each of these. labels are the values of a
// family with the most labels; the others have the first of them.
func series[T any](families []metric[T], these []T, labels func(T) []string) []metricFamily {
	r := &rows{names: longestLabels(families), values: make([][]string, len(these)), texts: map[int][]string{}}
	for i, from := range these {
		r.values[i] = labels(from)
	}
	var all []metricFamily
	for _, f := range families {
		m := metricFamily{family: f.family, rows: r, values: make([]float64, 0, len(these)), at: make([]int32, 0,
			len(these))}
		for i, from := range these {
			if value, ok := f.value(from); ok {
				m.values, m.at = append(m.values, value), append(m.at, int32(i))
			}
		}
		if len(m.values) > 0 {
			all = append(all, m)
		}
	}
	return all
}

// longestLabels returns the labels of the family that has the most.
func longestLabels[T any](families []metric[T]) (names []string) {
	for _, f := range families {
		if len(f.labels) > len(names) {
			names = f.labels
		}
	}
	return names
}

// proto returns the family with its first n series as the library has it.
func (m *metricFamily) proto(n int) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: m.kind.Enum(), Metric: make([]*dto.Metric, n)}
	for i := range n {
		one := &dto.Metric{}
		for j := range m.labels {
			one.Label = append(one.Label, &dto.LabelPair{Name: &m.rows.names[j], Value: &m.rows.values[m.at[i]][j]})
		}
		if m.kind == counter {
			one.Counter = &dto.Counter{Value: &m.values[i]}
		} else {
			one.Gauge = &dto.Gauge{Value: &m.values[i]}
		}
		f.Metric[i] = one
	}
	return f
}

// single reports whether its samples have its name in each format.
func (m *metricFamily) single() bool { return m.kind == gauge || strings.HasSuffix(m.name, "_total") }

// appendSamples appends the lines of its series from the second one on.
func (m *metricFamily) appendSamples(b []byte, open bool) []byte {
	texts := m.rows.text(len(m.labels))
	for i, value := range m.values[1:] {
		b = append(append(append(b, m.name...), texts[m.at[i+1]]...), ' ')
		from := len(b)
		b = strconv.AppendFloat(b, value, 'g', -1, 64)
		// OpenMetrics tells floats from integers.
		if open && !math.IsNaN(value) && !math.IsInf(value, 0) && !bytes.ContainsAny(b[from:], "e.") {
			b = append(b, '.', '0')
		}
		b = append(b, '\n')
	}
	return b
}

// escapes are the escapes of label values.
var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// text returns the first n labels of each row as text.
func (r *rows) text(n int) []string {
	if texts := r.texts[n]; texts != nil {
		return texts
	}
	texts := make([]string, len(r.values))
	for i, values := range r.values {
		var text strings.Builder
		between := byte('{')
		for j, value := range values[:n] {
			text.WriteByte(between)
			text.WriteString(r.names[j])
			text.WriteString(`="`)
			_, _ = escapes.WriteString(&text, value) // a Builder takes all
			text.WriteByte('"')
			between = ','
		}
		if n > 0 {
			text.WriteByte('}')
		}
		texts[i] = text.String()
	}
	r.texts[n] = texts
	return texts
}
