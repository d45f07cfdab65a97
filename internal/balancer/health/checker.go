// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Checker asks endpoints by the protocols of their checks. Package checker has the one of the
// product; the engine itself knows no protocol.
type Checker interface {
	// Check asks once. It returns when the context ends at the latest, which may be after the check's
	// timeout, and calls report (nil: none asked for) after each step. The context lasts for contextBound, whose first
	// half a program may wait for its turn, to run for as long as the second half lasts.
	Check(ctx context.Context, endpoint Endpoint, check *lb.Check, report func(Step)) Answer
}

// contextBound returns how long the context of a check lasts that may take so long. Only so many programs run at a
// time: one that has waited for others runs for as long as any other, or its end would be evidence against a backend
// that answers in time.
func contextBound(check *lb.Check, within time.Duration) time.Duration {
	if check.Type == lb.CheckExec {
		return 2 * within
	}
	return within
}

// Starter is a Checker that makes some checks without a goroutine for each, which cost less so.
type Starter interface {
	Checker
	// Start begins a check that may take so long, whatever its timeout, or says by false that it is one
	// for Check. done is called once with the answer, by any goroutine and maybe before Start returns. When
	// the context ends, so does the check, whatever its answer; the context is that of the engine's run, the
	// same for all checks.
	Start(ctx context.Context, endpoint Endpoint, check *lb.Check, within time.Duration, done func(Answer)) bool
}

// Endpoint is the destination of a check.
type Endpoint struct {
	Via lb.Via
	// Backend is the backend whose way to take, with lb.ViaVIP.
	Backend lb.BackendKey
	// Address and Port are where the answer must come from: of the VIP, or of the backend.
	Address netip.Addr
	Port    uint16
}

// String returns "192.0.2.1:80".
func (e Endpoint) String() string { return netip.AddrPortFrom(e.Address, e.Port).String() }

// Outcome is the result of a check.
type Outcome uint8

// The outcomes.
const (
	// NoEvidence: nothing of the endpoint, because this host's own trouble was in the way.
	NoEvidence Outcome = iota
	Passed
	Failed
)

// Answer is the answer to a check, judged.
type Answer struct {
	Outcome Outcome
	// Silent says of a failed check that it only waited without success: a host that was too busy to read the answer
	// would have seen the same.
	Silent bool
	// Unreachable says of a failed check that the network reported the endpoint as unreachable.
	Unreachable bool
	// Finishing says of a failed check that it fails because the endpoint takes no new flow, as it answers itself: it
	// may go on with those that it has.
	Finishing bool
	// Passing says of NoEvidence that a start or an operation brings it, and that it is no trouble.
	Passing bool
	// Final ends the count of rise and fall: the endpoint has reported its state itself.
	Final bool
	// Text is the answer in a few words, as in "status 503".
	Text string
	// Reason says of the backend why the check failed, as in "refuses connections"; of a check that passed, why it may
	// soon fail.
	Reason string
	// Weight is the share of its weight that the backend asks for in per cent, where Weighs is
	// set, and Drain that it asks for no new flow, where Drains is. Else its last statement holds.
	Weighs bool
	Weight uint16
	Drains bool
	Drain  bool
	// Reported is the weight that the backend reports in place of its configured one, where Reports is set.
	Reports  bool
	Reported lb.ReportedWeight
}

// Pass returns the answer of a check that passed.
func Pass(text string) Answer { return Answer{Outcome: Passed, Text: text} }

// Fail returns the answer of a check that failed, for that reason.
func Fail(text, reason string) Answer { return Answer{Outcome: Failed, Text: text, Reason: reason} }

// Unreachable is Fail where the network reports the endpoint as unreachable.
func Unreachable(text, reason string) Answer {
	return Answer{Outcome: Failed, Unreachable: true, Text: text, Reason: reason}
}

// Trouble returns the answer of a check that could not be made: kind names the trouble, reason describes it in full.
func Trouble(kind, reason string) Answer {
	return Answer{Outcome: NoEvidence, Text: kind, Reason: reason}
}

// Silence returns the answer of a check in which the endpoint was asked, and did not answer.
func Silence(timeout time.Duration) Answer {
	return Answer{Outcome: Failed, Silent: true, Text: "no answer", Reason: "does not answer within " +
		timeout.String()}
}
