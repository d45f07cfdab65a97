// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ErrOutput means that a generator wrote something other than its report.
var ErrOutput = errors.New("not the report of the load generator")

// abReport is the report that ab prints at its end.
type abReport struct {
	Taken    time.Duration
	Complete uint64
	// Failed is ab's sum of the four kinds below.
	Failed                              uint64
	Connect, Receive, Length, Exception uint64
	WriteErrors, Non2xx                 uint64
	// DocumentBytes is the length of the first answer. ab compares all others with it: a different length is a Length
	// error.
	DocumentBytes uint64
}

// failed returns the number of requests that did not get the file. The file is the same for all requests, so a Length
// error is a real failure, and no artefact as with a page that changes. An error page counts once, whether its length
// differs from that of the first answer or not.
func (r abReport) failed() uint64 {
	return r.Failed + r.WriteErrors + r.Non2xx - min(r.Non2xx, r.Length)
}

// abErrors is the line that ab prints below "Failed requests" if there are any.
var abErrors = regexp.MustCompile(`^\s*\(Connect: (\d+), (?:Receive|Read): (\d+), Length: (\d+), Exceptions: (\d+)\)`)

// parseAB reads ab's report (ab.c, output_results). Its error wraps ErrOutput.
func parseAB(text []byte) (abReport, error) {
	var report abReport
	var taken, rate float64
	fields := map[string]any{
		"Time taken for tests": &taken,
		"Requests per second":  &rate,
		"Complete requests":    &report.Complete,
		"Failed requests":      &report.Failed,
		"Document Length":      &report.DocumentBytes,
		"Write errors":         &report.WriteErrors,
		"Non-2xx responses":    &report.Non2xx,
	}
	required := []string{"Time taken for tests", "Complete requests", "Failed requests", "Document Length"}
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if match := abErrors.FindStringSubmatch(lines.Text()); match != nil {
			for i, into := range []*uint64{&report.Connect, &report.Receive, &report.Length, &report.Exception} {
				// digits only: at worst out of range, and ParseUint then returns the maximum
				*into, _ = strconv.ParseUint(match[i+1], 10, 64)
			}
			continue
		}
		name, value, _ := strings.Cut(lines.Text(), ":")
		into, known := fields[name]
		if !known {
			continue
		}
		// A unit may follow the number.
		value, _, _ = strings.Cut(strings.TrimSpace(value), " ")
		if _, err := fmt.Sscan(value, into); err != nil {
			return abReport{}, fmt.Errorf("%w: %q has no number", ErrOutput, lines.Text())
		}
		seen[name] = true
	}
	for _, name := range required {
		if !seen[name] {
			return abReport{}, fmt.Errorf("%w: ab's report has no line %q", ErrOutput, name)
		}
	}
	if !(taken >= 0 && taken < 1e6) {
		return abReport{}, fmt.Errorf("%w: ab took %g s", ErrOutput, taken)
	}
	if report.Complete > 1e12 {
		return abReport{}, fmt.Errorf("%w: ab claims %d requests", ErrOutput, report.Complete)
	}
	report.Taken = time.Duration(refineDuration(taken, rate, float64(report.Complete)) * float64(time.Second))
	return report, nil
}

// refineDuration returns the time that ab took with more digits than the three that ab prints. It computes the time
// from ab's rate, which is the number of requests divided by that time, printed to hundredths. It returns taken if the
// rate does not match it.
func refineDuration(taken, rate, requests float64) float64 {
	const rounded = 0.0005
	if exact := requests / rate; rate > 0 && math.Abs(exact-taken) <= rounded+1e-9 {
		return exact
	}
	return taken
}

// parsePercentiles reads the file that `ab -e` writes: a header, and for each percentage the time within which that
// share of the requests was served, in milliseconds with three decimals. Its error wraps ErrOutput.
//
// For percentage i of n requests ab uses entry ⌊0.5 + n·i/100⌋ of its sorted table, counted from 0. With fewer than 50
// requests, that is entry n for the highest percentages. It is one past the end of the table, where ab reads 0, so
// these rows are left out.
func parsePercentiles(text io.Reader, requests uint64) ([]quantile, error) {
	reader := csv.NewReader(text)
	reader.FieldsPerRecord = 2
	if _, err := reader.Read(); err != nil {
		return nil, fmt.Errorf("%w: ab's table of percentiles has no header: %w", ErrOutput, err)
	}
	var points []quantile
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: ab's table of percentiles: %w", ErrOutput, err)
		}
		percent, errPercent := strconv.ParseFloat(record[0], 64)
		ms, errMs := strconv.ParseFloat(record[1], 64)
		if errPercent != nil || errMs != nil {
			return nil, fmt.Errorf("%w: ab's table of percentiles has a row %q", ErrOutput, record)
		}
		if percent < 100 && 0.5+float64(requests)*percent/100 >= float64(requests) {
			continue
		}
		points = append(points, quantile{percent: percent, us: ms * 1e3})
	}
	if err := checkQuantiles(points); err != nil {
		return nil, fmt.Errorf("%w: ab's table: %w", ErrOutput, err)
	}
	return points, nil
}
