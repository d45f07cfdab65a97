// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// answer writes scrapes in the formats of text. The library looks at each name again in each of a scrape's thousands of
// samples, which takes most of the time of a scrape: it writes a family's head and first sample, and answer the
// others, as the library would. Whoever asks for another format, or for some families only, is answered by the library.
type answer struct {
	gatherer *gatherer
	library  http.Handler
	// now is full while as many scrapes are answered as may be at once.
	now chan struct{}
}

// texts are buffers of scrapes, which are of the same size each time.
var texts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (a *answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case a.now <- struct{}{}:
		defer func() { <-a.now }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are answered now, which is as many as may be at once: try again later",
			cap(a.now)), http.StatusServiceUnavailable)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	kind := format.FormatType()
	if kind != expfmt.TypeTextPlain && kind != expfmt.TypeOpenMetrics || r.URL.Query().Has("name[]") {
		a.library.ServeHTTP(w, r)
		return
	}
	text := texts.Get().(*bytes.Buffer)
	defer texts.Put(text)
	text.Reset()
	families, err := a.gatherer.Gather()
	if err == nil {
		err = writeFamilies(text, format, families)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("making the metrics: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Add("Vary", "Accept")
	w.Header().Set("Content-Type", string(format))
	_, _ = w.Write(text.Bytes()) // an error: the client has gone
}

// writeFamilies writes families in a format of text.
func writeFamilies(w *bytes.Buffer, format expfmt.Format, families []*dto.MetricFamily) error {
	library := expfmt.NewEncoder(w, format)
	open := format.FormatType() == expfmt.TypeOpenMetrics
	for _, f := range families {
		if !single(f) {
			if err := library.Encode(f); err != nil {
				return err
			}
			continue
		}
		head := &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit, Metric: f.Metric[:1]}
		if err := library.Encode(head); err != nil {
			return err
		}
		for _, m := range f.Metric[1:] {
			w.Write(appendSample(w.AvailableBuffer(), f.GetName(), m, open))
		}
	}
	closer, ok := library.(io.Closer)
	if !ok {
		return errors.New("the library cannot end what it has begun")
	}
	return closer.Close()
}

// single says whether each metric of a family is one sample: a gauge, or a counter whose name is that of its samples in
// each format, and nothing else.
func single(f *dto.MetricFamily) bool {
	switch f.GetType() {
	case gauge:
	case counter:
		if !strings.HasSuffix(f.GetName(), "_total") {
			return false
		}
	default:
		return false
	}
	for _, m := range f.Metric {
		if m.TimestampMs != nil || m.GetCounter().GetExemplar() != nil || m.GetCounter().GetCreatedTimestamp() != nil {
			return false
		}
	}
	return len(f.Metric) > 0
}

// escapes are those of label values.
var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// appendSample appends the line of one sample.
func appendSample(b []byte, name string, m *dto.Metric, open bool) []byte {
	b = append(b, name...)
	between := byte('{')
	for _, label := range m.Label {
		b = append(append(append(b, between), label.GetName()...), '=', '"')
		if value := label.GetValue(); strings.ContainsAny(value, "\\\n\"") {
			b = append(b, escapes.Replace(value)...)
		} else {
			b = append(b, value...)
		}
		b = append(b, '"')
		between = ','
	}
	if len(m.Label) > 0 {
		b = append(b, '}')
	}
	b = append(b, ' ')
	value := m.GetGauge().GetValue()
	if m.Counter != nil {
		value = m.Counter.GetValue()
	}
	from := len(b)
	b = strconv.AppendFloat(b, value, 'g', -1, 64)
	// OpenMetrics tells floats from integers.
	if open && !math.IsNaN(value) && !math.IsInf(value, 0) && !bytes.ContainsAny(b[from:], "e.") {
		b = append(b, '.', '0')
	}
	return append(b, '\n')
}
