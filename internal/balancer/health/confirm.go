// SPDX-License-Identifier: Apache-2.0

package health

import "time"

// A verdict of the previous process may be of a backend that has died, or come back, since that process ended. A
// verdict by rise or fall checks an interval apart would come too late: until then the backend gets new flows. So,
// where no process asked for longer than the interval, the verdict is confirmed: the endpoint is asked soon after the
// start, and answers that contradict its state are followed by the next check at once. They count as ever (rise, fall),
// so one probe that was lost takes no backend out, which a first failure that decided would (HAProxy's rule at a
// start). After a shorter absence, as of a restart, nothing was missed, and checks go on as if there had been none.

const (
	// confirmInterval is the time from a check's start to the next one's while a verdict is confirmed, and the answers
	// do not bear it out yet.
	confirmInterval = 200 * time.Millisecond
	// firstWithin is the time over which the first checks of the verdicts to confirm are spread, the interval at most.
	firstWithin = time.Second
	// spareConfirmChecks is how many checks hurry beyond rise and fall: some may be no evidence.
	spareConfirmChecks = 5
)

// confirmChecksFor is how many checks of a target may hurry: an endpoint that can be asked in no way hurries for some
// time only.
func confirmChecksFor(t *target) uint32 { return t.rise() + t.fall() + spareConfirmChecks }

// needsConfirmation reports whether the target's verdict is to be confirmed soon.
func (t *target) needsConfirmation() bool { return t.uncheckedFor > 0 && t.confirmChecksLeft > 0 }

// start returns when a target is asked first: at the next of its own times from the one given, or within a moment,
// where its verdict is to be confirmed.
func (t *target) start(now, from time.Duration) time.Duration {
	if t.needsConfirmation() {
		return now + time.Duration(t.id%uint64(min(firstWithin, t.key.spec.check.Interval)))
	}
	return t.slot(from)
}

// markConfirmed notes that answers have borne the state out, or changed it, if they have, and reports whether that is
// new.
func (t *target) markConfirmed() bool {
	if t.uncheckedFor == 0 || t.state == Unknown || t.doubtful() {
		return false
	}
	t.uncheckedFor = 0
	return true
}
