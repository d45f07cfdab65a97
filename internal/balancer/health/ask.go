// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"time"
)

// CheckNow checks a backend now, beside the schedule and without consequence for its verdict: each check of it, one
// after the other. It calls report (nil: none asked for) with every step. The results have the answers, and the states
// Healthy for a check that passed, Failing for one that did not, and Unknown for one that this host could not make. The
// error is the context's.
func (e *Engine) CheckNow(ctx context.Context, wanted Wanted, report func(Step)) ([]Result, error) {
	in := newInterner(nil)
	results := make([]Result, 0, len(wanted.Checks))
	for i, check := range wanted.Checks {
		endpoint := in.key(&wanted, in.spec(check)).endpoint(wanted.Backend)
		var each func(Step)
		if report != nil {
			each = func(s Step) {
				s.Check = i
				report(s)
			}
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, contextBound(&check, check.Timeout))
		answer := e.checker.Check(bounded, endpoint, &check, each)
		cancel()
		if err := ctx.Err(); err != nil {
			return results, err
		}
		results = append(results, answer.result(began))
	}
	return results, nil
}

func (a Answer) result(began time.Time) Result {
	now := time.Now()
	r := Result{State: Unknown, Last: now, Took: now.Sub(began), Answer: a.Text, Reason: a.Reason}
	switch a.Outcome {
	case Passed:
		r.State, r.Passed = Healthy, 1
	case Failed:
		r.State, r.Failed = Failing, 1
	}
	return r
}
