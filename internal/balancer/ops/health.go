// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Serving says which backends of a service take new flows.
type Serving string

// The sets of backends that a service's new flows can go to.
const (
	// ServingHealthy: its healthy backends that are no backups.
	ServingHealthy Serving = "healthy"
	// ServingBackups: its healthy backups, for no other backend serves.
	ServingBackups Serving = "backups"
	// ServingAll: healthy backends and failing ones, for fewer are healthy than panic asks for.
	ServingAll Serving = "all"
)

// Check is a health check of a service's backends.
type Check struct {
	// Check describes the request, as in "http GET /healthz", and Expected the answer that passes, as in "status
	// 200-399".
	Check    string `json:"check"`
	Expected string `json:"expected"`
	Via      lb.Via `json:"via"`
	// IntervalSeconds is the time from one to the next, TimeoutSeconds bounds one, and Rise and
	// Fall are how many in a row make a verdict.
	IntervalSeconds float64 `json:"interval_seconds"`
	TimeoutSeconds  float64 `json:"timeout_seconds"`
	Rise            uint16  `json:"rise"`
	Fall            uint16  `json:"fall"`
}

// Health is the result of a backend's checks.
type Health struct {
	State lb.Health `json:"state"`
	// Reason is the reason why the backend fails, or is about to; empty: it passes.
	Reason string `json:"reason,omitempty"`
	// Since is when the state began; absent before there is a verdict.
	Since time.Time `json:"since,omitzero"`
	// WeightPercent is the share of its weight that the backend's agent requests, and Drain whether it requests no new
	// flows.
	WeightPercent uint16 `json:"weight_percent"`
	Drain         bool   `json:"drain,omitempty"`
	// Checks are the results of the service's checks, in their order.
	Checks []CheckResult `json:"checks"`
}

// CheckResult is the result of one check.
type CheckResult struct {
	State lb.Health `json:"state"`
	// Passed and Failed count the last results of that kind in a row; one of them is 0.
	Passed uint32 `json:"passed"`
	Failed uint32 `json:"failed"`
	// Last is the end of the last check, TookSeconds its duration, Answer its answer, and Reason the fault in that.
	// Absent before the first check.
	Last        time.Time `json:"last,omitzero"`
	TookSeconds float64   `json:"took_seconds"`
	Answer      string    `json:"answer,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	// Next is the time of the next check.
	Next time.Time `json:"next,omitzero"`
}

// ResultOf returns the result of a check for the API.
func ResultOf(r lb.CheckResult) CheckResult {
	return CheckResult{State: r.State, Passed: r.Passed, Failed: r.Failed, Last: r.Last, TookSeconds: r.Took.Seconds(),
		Answer: r.Answer, Reason: r.Reason, Next: r.Next}
}

// CheckStep is one step of a check on request.
type CheckStep struct {
	// Check is the check's place in the service's list.
	Check int `json:"check"`
	// Name is the step, as in "connect"; AtSeconds is when that ended, counted from the start of the check, and
	// TookSeconds its own time.
	Name        string  `json:"name"`
	AtSeconds   float64 `json:"at_seconds"`
	TookSeconds float64 `json:"took_seconds"`
	// Text is the step's result, in words. Failed: the check ends there.
	Text   string `json:"text"`
	Failed bool   `json:"failed,omitempty"`
}

// StepOf returns a step for the API.
func StepOf(s lb.CheckStep) CheckStep {
	return CheckStep{Check: s.Check, Name: s.Name, AtSeconds: s.At.Seconds(), TookSeconds: s.Took.Seconds(),
		Text: s.Text, Failed: s.Failed}
}

// Checked is a backend that was checked on request, without consequence for its verdict.
type Checked struct {
	Target
	// Checks are the checks made, Results and Steps their results.
	Checks  []Check       `json:"checks"`
	Results []CheckResult `json:"results"`
	Steps   []CheckStep   `json:"steps"`
	// State is the backend's state in the balancer, which this check does not change.
	State lb.BackendState `json:"state"`
}
