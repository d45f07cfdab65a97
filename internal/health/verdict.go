// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"github.com/jeoul/jeoul/internal/lb"
)

// Wanted is a backend of a service, and what is to be asked of it.
type Wanted struct {
	Backend lb.BackendKey
	// Checks are asked side by side. All of them must pass, or one where Any is set.
	Checks []lb.Check
	Any    bool
}

// State is a verdict in a word.
type State string

// The states.
const (
	// Unknown: there are not yet enough answers for a verdict.
	Unknown State = "unknown"
	Healthy State = "healthy"
	Failing State = "failing"
)

// Verdict is what the checks of a backend say of it.
type Verdict struct {
	State State
	// Reason says of the backend why it fails, or why it may soon, as in "answers GET /healthz
	// with status 503, not 200..399"; empty: nothing speaks against it.
	Reason string
	// Since is when the state began.
	Since time.Time
	// Weight is what share of its weight the backend asks for, in per cent (checks of type
	// agent); 100 without one.
	Weight uint16
	// Drain: the backend asks for no new flow (checks of type agent).
	Drain bool
	// Checks has what each check says, in the order of Wanted.Checks.
	Checks []Result
}

// Result is what one check of an endpoint says.
type Result struct {
	State State
	// Passed and Failed count the answers of that kind in a row; one of them is 0.
	Passed, Failed uint32
	// Last is when the last check ended, Took how long it took, and Answer what came of it, as
	// in "status 503" or "connection refused".
	Last   time.Time
	Took   time.Duration
	Answer string
	// Next is when the endpoint is asked again.
	Next time.Time
}
