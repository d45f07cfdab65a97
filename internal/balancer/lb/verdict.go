// SPDX-License-Identifier: Apache-2.0

package lb

import "time"

// CheckTarget is a backend of a service, and its checks.
type CheckTarget struct {
	Backend BackendKey
	// Mode is how the service's packets reach the backend. Services of one VIP share the checks
	// by way of it (ViaVIP) where they have the same mode; empty: they share none.
	Mode Mode
	// Checks are asked side by side. All of them must pass, or one where Any is set.
	Checks []Check
	Any    bool
}

// Health is the result of health checks of a backend, in a word.
type Health string

// The words.
const (
	// HealthUnknown: there are not yet enough answers for a verdict.
	HealthUnknown Health = "unknown"
	Healthy       Health = "healthy"
	Failing       Health = "failing"
)

// Verdict is the result of all checks of a backend.
type Verdict struct {
	State Health
	// Reason says of the backend why it fails, or why it may soon, as in "answers GET /healthz
	// with status 503, not 200..399"; empty: nothing speaks against it.
	Reason string
	// Since is when the state began.
	Since time.Time
	// Weight is the share of its weight that the backend asks for, in per cent (checks of type agent); 100 without one.
	Weight uint16
	// Reported is the weight that the backend reports in place of its configured one (HTTPCheck.WeightHeader).
	Reported ReportedWeight
	// Drain: the backend asks for no new flow (checks of type agent).
	Drain bool
	// Finishing: it fails because it takes no new flow, as it answers itself, and may go on with those that it has.
	Finishing bool
	// Unconfirmed: it is the verdict of the previous process, whose checks ended longer ago than their interval, and no
	// answer has borne it out yet.
	Unconfirmed bool
	// Checks has the result of each check, in the order of Checking.Checks.
	Checks []CheckResult
}

// ReportedWeight is the weight that a backend reports in place of its configured one. The zero value: it reports none.
type ReportedWeight struct {
	Known bool   `json:"known"`
	Value uint16 `json:"value"`
}

// CheckResult is the result of one check of an endpoint.
type CheckResult struct {
	State Health
	// Passed and Failed count the answers of that kind in a row; one of them is 0.
	Passed, Failed uint32
	// Last is when the last check ended, Took how long it took, and Answer its answer, as in "status 503" or
	// "connection refused".
	Last   time.Time
	Took   time.Duration
	Answer string
	// Reason says of the backend why the check fails, or may soon fail; empty: neither is so.
	Reason string
	// Next is when the endpoint is asked again; zero while it is asked.
	Next time.Time
}

// CheckStep is a part of a check that is made now, to be shown.
type CheckStep struct {
	// Check is the place of the check in Checking.Checks.
	Check int
	// Name names the step: connect, tls, request, answer, run.
	Name string
	// At is when the step ended, counted from the start of the check, and Took its own time.
	At, Took time.Duration
	// Text is the step's result, in words.
	Text string
	// Failed says that the check ends here.
	Failed bool
}
