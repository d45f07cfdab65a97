// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// DNSPerf queries a DNS server over UDP as fast as it answers, with up to a hundred outstanding queries, or at a rate
// (https://www.dns-oarc.net/tools/dnsperf). It is the generator of the DNS experiment.
type DNSPerf struct {
	Requesting
	// Question is a line of dnsperf's input: a name and a type.
	Question string
	// Threads is dnsperf's -T; 0 means its own default.
	Threads int
	// Rate is dnsperf's -Q, in queries per second; 0 means as many as are answered.
	Rate int
	// Timeout is how long a query may take before it counts as lost, in whole seconds; 0 means dnsperf's own default,
	// DNSPerfTimeout.
	Timeout time.Duration
	// Once makes dnsperf send a single query.
	Once bool
}

// DNSPerfTimeout is dnsperf's default timeout.
const DNSPerfTimeout = 5 * time.Second

// Name returns the generator's name in a suite, which is also the program's.
func (DNSPerf) Name() string { return "dnsperf" }

// VersionFlag returns the argument that makes dnsperf print its version.
func (DNSPerf) VersionFlag() string { return "-h" }

// SkipReason counts a socket for each of dnsperf's clients.
func (DNSPerf) SkipReason(share Share, limits probe.Limits) string {
	return SkipReason("dnsperf", share, limits)
}

// Prepare writes the file of queries, which dnsperf repeats.
func (k DNSPerf) Prepare(share Share) ([]string, error) {
	questions := filepath.Join(share.Dir, "dnsperf.questions")
	if err := os.WriteFile(questions, []byte(k.Question+"\n"), 0o644); err != nil {
		return nil, err
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
	end := []string{"-l", seconds(share.Duration)}
	if k.Once {
		end = []string{"-n", "1"}
	}
	command := append([]string{"dnsperf", "-s", share.Target.Addr().String(), "-p",
		strconv.Itoa(int(share.Target.Port())), "-d", questions}, end...)
	command = append(command, "-c", strconv.Itoa(share.Concurrency))
	if k.Threads > 0 {
		command = append(command, "-T", strconv.Itoa(k.Threads))
	}
	if k.Rate > 0 {
		command = append(command, "-Q", strconv.Itoa(k.Rate))
	}
	if k.Timeout > 0 {
		command = append(command, "-t", seconds(k.Timeout))
	}
	return command, nil
}

// Parse counts answers without an error as good. It distinguishes lost queries from wrong answers.
func (DNSPerf) Parse(_ Share, stdout []byte) (*Outcome, error) {
	report, err := parseDNSPerf(stdout)
	if err != nil {
		return nil, err
	}
	outcome := &Outcome{
		Requests: report.good, Failed: report.completed - report.good, Lost: report.lost, Taken: report.runTime,
		Waits: Waits{Min: report.minimum, Mean: report.mean, Max: report.maximum},
	}
	if outcome.Failed > 0 {
		outcome.Problems = append(outcome.Problems, fmt.Sprintf("%d queries were answered with an error: %s",
			outcome.Failed, report.codes))
	}
	return outcome, nil
}
