// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// wrkReport is the line of JSON that wrk.lua prints.
type wrkReport struct {
	Requests   uint64 `json:"requests"`
	DurationUs uint64 `json:"duration_us"`
	Errors     struct {
		Connect uint64 `json:"connect"`
		Read    uint64 `json:"read"`
		Write   uint64 `json:"write"`
		Status  uint64 `json:"status"`
		Timeout uint64 `json:"timeout"`
	} `json:"errors"`
	// Latencies are pairs of microseconds and a number of requests.
	Latencies [][2]int64 `json:"latencies_us"`
	// Percentiles are pairs of a percentage and microseconds. They replace Latencies if the script could not read wrk's
	// table.
	Percentiles [][2]float64 `json:"percentiles_us"`
}

// failed returns the number of failed requests and connections.
func (r wrkReport) failed() uint64 {
	return r.Errors.Connect + r.Errors.Read + r.Errors.Write + r.Errors.Status + r.Errors.Timeout
}

// parseWrk finds the script's line in wrk's output. Its error wraps ErrOutput.
func parseWrk(text []byte) (wrkReport, error) {
	start := bytes.LastIndex(text, []byte("\n{\"requests\":"))
	if start < 0 {
		return wrkReport{}, fmt.Errorf("%w: wrk's output has no line from our script", ErrOutput)
	}
	line, _, _ := bytes.Cut(text[start+1:], []byte{'\n'})
	var report wrkReport
	if err := json.Unmarshal(line, &report); err != nil {
		return wrkReport{}, fmt.Errorf("%w: the line from our script in wrk: %w", ErrOutput, err)
	}
	if report.Requests > 1e12 || report.failed() > 1e12 || report.DurationUs > maxUs*24 {
		return wrkReport{}, fmt.Errorf("%w: wrk claims %d requests in %d µs", ErrOutput, report.Requests,
			report.DurationUs)
	}
	for _, pair := range report.Latencies {
		if pair[0] < 0 || pair[0] > maxUs || pair[1] < 0 || pair[1] > 1e12 {
			return wrkReport{}, fmt.Errorf("%w: wrk counted %d requests of %d µs", ErrOutput, pair[1], pair[0])
		}
	}
	return report, nil
}

// latency returns wrk's measurements, and false if they still contain wrk's correction.
//
// At its end wrk adds requests that it never made (stats.c, stats_correct). For each request that took at least twice
// the mean interval between two requests of a connection, it adds one at each whole interval below. The result is not
// the latency that clients saw. The table holds the sum. A request only ever adds to entries below it, so going down
// from the top and subtracting what each entry added restores the measured values exactly.
func (r wrkReport) latency(connections uint64) (l *Latency, measured bool, err error) {
	if r.Latencies == nil {
		points := make([]quantile, len(r.Percentiles))
		for i, pair := range r.Percentiles {
			points[i] = quantile{percent: pair[0], us: pair[1]}
		}
		l, err = fromQuantiles(points, int64(r.Requests))
		return l, false, err
	}
	counts, measured := r.uncorrected(connections)
	l = newLatency()
	for _, pair := range counts {
		if pair[1] == 0 {
			continue
		}
		if err := l.record(float64(pair[0]), pair[1]); err != nil {
			return nil, false, err
		}
	}
	return l, measured, nil
}

// uncorrected removes wrk's correction from the table. If the result does not add up to the requests that were made, it
// returns the table unchanged, and false.
func (r wrkReport) uncorrected(connections uint64) (counts [][2]int64, ok bool) {
	expected := int64(0)
	if connections > 0 && r.Requests/connections > 0 {
		expected = int64(r.DurationUs / (r.Requests / connections))
	}
	counts = slices.Clone(r.Latencies)
	slices.SortFunc(counts, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	if expected > 0 && !uncorrect(counts, expected) {
		return r.Latencies, false
	}
	var total uint64
	for _, pair := range counts {
		total += uint64(pair[1])
	}
	// wrk counts a request over its time limit in Requests, not in the table.
	if total > r.Requests || total+r.Errors.Timeout < r.Requests {
		return r.Latencies, false
	}
	return counts, true
}

// uncorrect reverses stats_correct on counts, sorted by their microseconds.
func uncorrect(counts [][2]int64, expected int64) bool {
	at := make(map[int64]int, len(counts))
	for i, pair := range counts {
		at[pair[0]] = i
	}
	for i := len(counts) - 1; i >= 0 && counts[i][0] >= 2*expected; i-- {
		us, count := counts[i][0], counts[i][1]
		if count == 0 {
			continue
		}
		for m := us - expected; m > expected; m -= expected {
			j, exists := at[m]
			if !exists || counts[j][1] < count {
				return false
			}
			counts[j][1] -= count
		}
	}
	return true
}
