// SPDX-License-Identifier: Apache-2.0

package paced

import (
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// Kind is the load's generator: the jeoul binary itself.
type Kind struct {
	load.JeoulClient
	// Path is the requested path.
	Path string
	// Keep and Bound are as in Options.
	Keep  bool
	Bound time.Duration
}

// Name is the kind's name in a suite.
const Name = "paced"

func init() {
	load.Register(Kind{})
	load.RegisterClient[Options](Name)
}

// Name returns the generator's name in a suite.
func (Kind) Name() string { return Name }

// Prepare needs no files.
func (k Kind) Prepare(share load.Share) ([]string, error) {
	options := Options{
		Target: share.Target, Path: k.Path, FileBytes: share.FileBytes, Rate: share.Rate, Delay: share.Delay,
		Duration: share.Duration, Connections: share.Concurrency, Keep: k.Keep, Bound: k.Bound,
	}
	if err := options.Check(); err != nil {
		return nil, err
	}
	return load.ClientCommand(share, Name, options)
}

// Parse reads the report of one client.
func (k Kind) Parse(_ load.Share, stdout []byte) (*load.Outcome, error) {
	report, err := Parse(stdout)
	if err != nil {
		return nil, err
	}
	outcome := &load.Outcome{
		Requests: report.Answered, Failed: report.Failed, Latency: report.Latency,
		Taken: time.Duration(report.Seconds * float64(time.Second)),
	}
	switch {
	case report.GaveUp:
		outcome.Problems = append(outcome.Problems,
			fmt.Sprintf("given up after %.1f s, for more than 1 %% of the requests took longer than %v",
				report.Seconds, k.Bound))
	case report.Failed > 0:
		outcome.Problems = append(outcome.Problems, fmt.Sprintf("%d of %d requests failed: %s", report.Failed,
			report.Due, strings.Join(report.Why, "; ")))
	}
	if report.Waited > 0 {
		outcome.Notes = append(outcome.Notes,
			fmt.Sprintf("%d requests were due while all connections were in use, and had to wait", report.Waited))
	}
	return outcome, nil
}
