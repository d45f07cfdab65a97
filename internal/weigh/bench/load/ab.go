// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// AB is ApacheBench without -k: it opens a connection for each request, as in the first document
// (https://httpd.apache.org/docs/2.4/programs/ab.html).
type AB struct{ Requesting }

// Bounds of ab.c.
const (
	abMaxConcurrency = 20_000
	// abTimeoutSeconds is ab's own limit for a silent connection.
	abTimeoutSeconds = 30
	// abRequestsPerSecond is more than one ab can make. In a timed run, ab reserves memory for a number of requests,
	// and stops when it has made that many.
	abRequestsPerSecond = 200_000
)

// Name returns the generator's name in a suite, which is also the program's.
func (AB) Name() string { return "ab" }

// VersionFlag returns the argument that makes ab print its version.
func (AB) VersionFlag() string { return "-V" }

// Counted reports whether ab can stop after a number of requests.
func (AB) Counted() bool { return true }

// SkipReason limits the connections by the number that ab can hold, and by open files and ports.
func (AB) SkipReason(share Share, limits probe.Limits) string {
	if share.Concurrency > abMaxConcurrency {
		return fmt.Sprintf("%d connections per client: ab can hold %d", share.Concurrency, abMaxConcurrency)
	}
	return SkipReason("ab", share, limits)
}

func (AB) percentiles(share Share) string { return filepath.Join(share.Dir, "percentiles.csv") }

// Prepare removes the table of percentiles of an earlier trial.
func (k AB) Prepare(share Share) ([]string, error) {
	// A table of an earlier trial must not be read as this trial's.
	if err := removeIfThere(k.percentiles(share)); err != nil {
		return nil, err
	}
	// -r: count a broken connection and continue, so that the count is known.
	args := []string{"ab", "-q", "-r", "-s", strconv.Itoa(abTimeoutSeconds), "-e", k.percentiles(share),
		"-c", strconv.Itoa(share.Concurrency)}
	requests := share.Requests
	if seconds := int(share.Duration.Seconds()); seconds > 0 {
		args = append(args, "-t", strconv.Itoa(seconds))
		requests = seconds * abRequestsPerSecond
	}
	// -n stands after -t, which would set it back to 50,000.
	return append(args, "-n", strconv.Itoa(requests), share.URL), nil
}

// Parse reads ab's report, and the latencies from its table of percentiles.
func (k AB) Parse(share Share, stdout []byte) (*Outcome, error) {
	report, err := parseAB(stdout)
	if err != nil {
		return nil, err
	}
	outcome := &Outcome{
		Failed:   report.failed(),
		Requests: report.Complete - min(report.Complete, report.failed()),
		Taken:    report.Taken,
		Latency:  newLatency(),
	}
	if outcome.Failed > 0 {
		outcome.Problems = append(outcome.Problems, fmt.Sprintf(
			"%d requests failed (connect %d, receive %d, length %d, exceptions %d, write %d, answers other than 2xx %d)",
			outcome.Failed, report.Connect, report.Receive, report.Length, report.Exception, report.WriteErrors,
			report.Non2xx))
	}
	if report.Complete == 0 {
		return outcome, nil
	}
	// ab compares all answers with the first one. This checks that the first was the file.
	if report.DocumentBytes != uint64(share.FileBytes) {
		outcome.Problems = append(outcome.Problems, fmt.Sprintf("the first answer had %d bytes, but the file has %d",
			report.DocumentBytes, share.FileBytes))
	}
	file, err := os.Open(k.percentiles(share))
	if err != nil {
		return nil, fmt.Errorf("%w: ab wrote no table of percentiles: %w", ErrOutput, err)
	}
	defer file.Close()
	points, err := parsePercentiles(file, report.Complete)
	if err != nil {
		return nil, err
	}
	outcome.Latency, err = fromQuantiles(points, int64(report.Complete))
	return outcome, err
}
