// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// dnsperfReport is the part of dnsperf's report that jeoul reads.
type dnsperfReport struct {
	sent, completed, lost uint64
	// good is the number of queries answered NOERROR; codes is the line of the response codes.
	good  uint64
	codes string
	// runTime is the time from the first query to the last answer.
	runTime                time.Duration
	minimum, mean, maximum time.Duration
}

var (
	dnsperfCount = regexp.MustCompile(`(?m)^ *Queries (sent|completed|lost): +(\d+)`)
	// dnsperfCodes matches an empty line of codes if nothing was answered.
	dnsperfCodes   = regexp.MustCompile(`(?m)^ *Response codes: *(.*?) *$`)
	dnsperfGood    = regexp.MustCompile(`\bNOERROR (\d+)\b`)
	dnsperfTime    = regexp.MustCompile(`(?m)^ *Run time \(s\): +([\d.]+)`)
	dnsperfLatency = regexp.MustCompile(`(?m)^ *Average Latency \(s\): +([\d.]+) \(min ([\d.]+), max ([\d.]+)\)`)
)

// parseDNSPerf reads dnsperf's output. Its error wraps ErrOutput.
func parseDNSPerf(text []byte) (dnsperfReport, error) {
	var report dnsperfReport
	bad := func(format string, args ...any) (dnsperfReport, error) {
		return dnsperfReport{}, fmt.Errorf("%w: dnsperf's "+format, append([]any{ErrOutput}, args...)...)
	}
	counts := map[string]*uint64{"sent": &report.sent, "completed": &report.completed, "lost": &report.lost}
	for _, match := range dnsperfCount.FindAllSubmatch(text, -1) {
		to := counts[string(match[1])]
		if to == nil {
			return bad("output says twice how many queries were %s", match[1])
		}
		delete(counts, string(match[1]))
		var err error
		if *to, err = strconv.ParseUint(string(match[2]), 10, 64); err != nil || *to > maxQueries {
			return bad("output has %s queries, which cannot be", match[2])
		}
	}
	codes, seconds, waits := dnsperfCodes.FindSubmatch(text), dnsperfTime.FindSubmatch(text),
		dnsperfLatency.FindSubmatch(text)
	if len(counts) > 0 || codes == nil || seconds == nil || waits == nil {
		return bad("output is not the report that we know")
	}
	report.codes = string(bytes.ToValidUTF8(codes[1], nil))
	if good := dnsperfGood.FindSubmatch(codes[1]); good != nil {
		report.good, _ = strconv.ParseUint(string(good[1]), 10, 64) // only digits; if out of range, more than completed
	}
	for _, d := range []struct {
		text []byte
		to   *time.Duration
	}{{seconds[1], &report.runTime}, {waits[1], &report.mean}, {waits[2], &report.minimum},
		{waits[3], &report.maximum}} {
		number, err := strconv.ParseFloat(string(d.text), 64)
		if err != nil || number > maxSeconds {
			return bad("output has a time of %s s, which cannot be", d.text)
		}
		*d.to = time.Duration(math.Round(number * 1e9))
	}
	if report.completed > report.sent || report.lost > report.sent-report.completed || report.good > report.completed {
		return bad("counts contradict each other: %d sent, %d completed, %d good, %d lost", report.sent,
			report.completed, report.good, report.lost)
	}
	if report.minimum > report.mean || report.mean > report.maximum {
		return bad("latencies contradict each other: min %v, mean %v, max %v", report.minimum, report.mean,
			report.maximum)
	}
	return report, nil
}

// maxQueries is more than any dnsperf can have sent: a hundred million a second for two hours.
const maxQueries = 100_000_000 * maxSeconds
