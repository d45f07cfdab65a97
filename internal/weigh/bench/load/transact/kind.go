// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// Kind is a test as a load's generator: the jeoul binary itself.
type Kind struct {
	load.JeoulClient
	Test Test
}

// clientName is the name of the client of both tests.
const clientName = "transact"

func init() {
	load.Register(Kind{Test: CRR}, Kind{Test: RR})
	load.RegisterClient[Options](clientName)
}

// Name returns the generator's name in a suite.
func (k Kind) Name() string { return string(k.Test) }

// Prepare needs no files.
func (k Kind) Prepare(share load.Share) ([]string, error) {
	options := Options{Test: k.Test, Target: share.Target, Connections: share.Concurrency, Duration: share.Duration}
	if err := options.Check(); err != nil {
		return nil, err
	}
	return load.ClientCommand(share, clientName, options)
}

// Parse reads the report of one client.
func (Kind) Parse(_ load.Share, stdout []byte) (*load.Outcome, error) {
	report, err := Parse(stdout)
	if err != nil {
		return nil, err
	}
	outcome := &load.Outcome{
		Requests: report.Transactions, Failed: report.Failed, Latency: report.Latency,
		Taken:   time.Duration(report.Seconds * float64(time.Second)),
		Drained: time.Duration(report.Drained * float64(time.Second)),
	}
	if report.Failed > 0 {
		outcome.Problems = append(outcome.Problems, fmt.Sprintf("%d transactions failed: %s", report.Failed,
			strings.Join(report.Why, "; ")))
	}
	return outcome, nil
}
