// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Parts that generators share that are the jeoul binary itself (paced, transact): a client prints a report as JSON,
// which is read where the trial is run.

// Failures is the part of a client's report about failed requests.
type Failures struct {
	// Failed counts the failed requests.
	Failed uint64 `json:"failed"`
	// Why says for some of them why: different reasons, maxWhy at most.
	Why []string `json:"why,omitempty"`
}

// maxWhy is how many reasons are kept.
const maxWhy = 5

// Fail counts a request that failed for a reason.
func (f *Failures) Fail(err error) {
	f.Failed++
	f.Why = withReason(f.Why, err.Error())
}

// withReason adds a reason to those that are kept, unless it is among them or they are enough.
func withReason(reasons []string, reason string) []string {
	if len(reasons) < maxWhy && !slices.Contains(reasons, reason) {
		return append(reasons, reason)
	}
	return reasons
}

// ReadReport reads a client's report, in which the functions find the latencies, and how many of
// them there must be. Its error wraps ErrOutput.
func ReadReport[R any](text []byte, latency func(*R) *Latency, ended func(*R) uint64) (*R, error) {
	var r R
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	l := latency(&r)
	if l == nil {
		return nil, fmt.Errorf("%w: it has no latencies", ErrOutput)
	}
	if want := ended(&r); uint64(l.Count()) != want {
		return nil, fmt.Errorf("%w: it has %d latencies of %d that ended", ErrOutput, l.Count(), want)
	}
	return &r, nil
}
