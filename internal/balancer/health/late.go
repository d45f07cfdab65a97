// SPDX-License-Identifier: Apache-2.0

package health

import "time"

const (
	// allowedLateShare is the part of a timeout by which this process may be late while a silence counts.
	allowedLateShare = 4
	// maxExtension is how many timeouts a check may take of a process that is late.
	maxExtension = 4
)

// evaluateSilence evaluates a check that had no answer within a time, for part of which (late) the process did not run.
// It is no evidence if the process ran for less than three quarters of the timeout, because an answer may be there that
// it has not read. From then on, until the target answers, checks are given longer, so that a process which is late for
// a share of its time is on time for the whole timeout: else a backend that hangs would never be found on a busy
// machine.
func (t *target) evaluateSilence(silence Answer, within, late time.Duration) Answer {
	timeout := t.key.spec.check.Timeout
	onTime := within - late
	if onTime >= timeout-timeout/allowedLateShare {
		return silence
	}
	wait := maxExtension * timeout
	if onTime > within/maxExtension {
		wait = time.Duration(float64(timeout) * float64(within) / float64(onTime))
	}
	t.extra = max(t.extra, wait-timeout)
	return Trouble("this host was busy", "this host was busy: it was late by "+late.Round(time.Millisecond).String())
}
