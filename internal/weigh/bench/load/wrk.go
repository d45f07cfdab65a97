// SPDX-License-Identifier: Apache-2.0

package load

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// Wrk keeps its connections open and sends the next request on each as soon as the previous one is answered
// (https://github.com/wg/wrk). It opens one connection more than requested, to check at the start that the server
// answers.
type Wrk struct{ Requesting }

//go:embed wrk.lua
var wrkScript []byte

// wrkTimeoutSeconds is the time after which wrk counts a request as failed. It also bounds wrk's table of latencies.
const wrkTimeoutSeconds = 10

// Name returns the generator's name in a suite, which is also the program's.
func (Wrk) Name() string { return "wrk" }

// VersionFlag returns the argument that makes wrk print its version.
func (Wrk) VersionFlag() string { return "-v" }

// SkipReason counts open files and ports.
func (Wrk) SkipReason(share Share, limits probe.Limits) string {
	return SkipReason("wrk", share, limits)
}

// Prepare writes the script that prints the report.
func (Wrk) Prepare(share Share) ([]string, error) {
	script := filepath.Join(share.Dir, "wrk.lua")
	if err := os.WriteFile(script, wrkScript, 0o644); err != nil {
		return nil, err
	}
	// One thread per client: a client is one small machine, and its generator's share of a core can then be measured.
	return []string{"wrk", "-t", "1", "-c", strconv.Itoa(share.Concurrency),
		"-d", strconv.Itoa(int(share.Duration.Seconds())) + "s",
		"--timeout", strconv.Itoa(wrkTimeoutSeconds) + "s", "-s", script, share.URL}, nil
}

// Parse reads the line that the script has printed.
func (Wrk) Parse(share Share, stdout []byte) (*Outcome, error) {
	report, err := parseWrk(stdout)
	if err != nil {
		return nil, err
	}
	latency, measured, err := report.latency(uint64(share.Concurrency))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	outcome := &Outcome{
		Failed: report.failed(),
		// wrk's requests include answers that came too late or were errors.
		Requests: report.Requests - min(report.Requests, report.Errors.Status+report.Errors.Timeout),
		Taken:    time.Duration(report.DurationUs) * time.Microsecond,
		Latency:  latency,
	}
	if outcome.Failed > 0 {
		e := report.Errors
		outcome.Problems = append(outcome.Problems, fmt.Sprintf(
			"%d requests failed (connect %d, read %d, write %d, answers other than 2xx and 3xx %d, over %d s %d)",
			outcome.Failed, e.Connect, e.Read, e.Write, e.Status, wrkTimeoutSeconds, e.Timeout))
	}
	if !measured {
		outcome.Notes = append(outcome.Notes,
			"latencies hold wrk's correction for requests it did not make, and so are too high")
	}
	return outcome, nil
}
