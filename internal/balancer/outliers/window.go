// SPDX-License-Identifier: Apache-2.0

package outliers

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// backend is the counters of one backend within the last interval.
type backend struct {
	// samples are the samples of the last interval, the oldest first, a tenth of the interval apart or Every where that
	// is more. last is the latest reading of its counters, and before the one before that.
	samples      []sample
	last, before sample
	ejection     *Ejection
	// times is how often it was ejected, less one for each interval served well, and since is when that was the case
	// last, or it was readmitted.
	times uint32
	since time.Time
	// spared is the reason for which it is not ejected though it fails, and failed the time when it did last.
	spared string
	failed time.Time
}

// sample is a reading of a backend's counters.
type sample struct {
	at time.Time
	// tried counts new connections, or datagrams, that were sent on. good counts answers: SYNs that were answered by
	// SYN and ACK, or packets to clients, ICMP errors included. bad are RSTs, or ICMP errors.
	tried, good, bad uint64
}

func sampleOf(now time.Time, p lb.Protocol, c lb.BackendCount) sample {
	if p == lb.UDP {
		return sample{now, c.Packets, c.ReturnedPackets, c.Unreachable}
	}
	return sample{now, c.Connections, c.Answered, c.Refused}
}

// reset begins again, when a backend begins to take new flows.
func (b *backend) reset(now time.Time) { b.ejection, b.samples, b.since = nil, nil, now }

// maxSamples is into how many parts an interval is divided, so that a long one takes no more
// memory than a short one.
const maxSamples = 10

// addSample adds the present reading. A counter that has become less belongs to another process or another map than
// before, so the backend's history is dropped.
func (b *backend) addSample(now time.Time, s sample, interval time.Duration) {
	if s.tried < b.last.tried || s.good < b.last.good || s.bad < b.last.bad {
		b.samples = nil
	}
	if n := len(b.samples); n == 0 || now.Sub(b.samples[n-1].at) >= max(Interval, interval/maxSamples) {
		b.samples = append(b.samples, s)
	}
	b.before, b.last = b.last, s
	for len(b.samples) > 1 && b.before.at.Sub(b.samples[1].at) >= interval {
		b.samples = b.samples[1:]
	}
}

// evaluation is the result of a backend's last interval.
type evaluation struct {
	// known: it says enough, by how much was tried and for how long.
	known bool
	// tried is how much was, bad whether it fails, and share how much of it, from 0 to 1.
	tried uint64
	fails bool
	share float64
	text  string
}

// evaluate evaluates an interval that ended at the reading before the last: later connections and datagrams may
// still be answered. Answers since then count, so that the share of failures is rather too small than too large.
func (b *backend) evaluate(s *Service) (j evaluation) {
	if len(b.samples) == 0 || b.before.at.Before(b.samples[0].at) {
		return evaluation{}
	}
	from := b.samples[0]
	j.tried = b.before.tried - from.tried
	duration := b.before.at.Sub(from.at)
	j.known = duration >= s.Interval && j.tried >= uint64(s.Connections)
	good, bad, over := b.last.good-from.good, b.last.bad-from.bad, duration.Round(time.Second)
	if s.Protocol == lb.UDP {
		good -= min(good, bad)
		j.text = fmt.Sprintf("has answered %d datagrams by %d packets and %d ICMP errors in %s", j.tried,
			good, bad, over)
		if bad > 0 && b.isSteady() {
			j.share = float64(bad) / float64(bad+good)
		}
	} else {
		answered := min(good, j.tried)
		j.text = fmt.Sprintf("has answered %d of %d new connections in %s", answered, j.tried, over)
		if refused := min(bad, j.tried-answered); refused > 0 {
			j.text += fmt.Sprintf(", and refused %d", refused)
		}
		if j.tried > 0 {
			j.share = float64(j.tried-answered) / float64(j.tried)
		}
	}
	j.fails = j.share*100 >= float64(s.Failures)
	return j
}

// isSteady reports whether there were errors in at least half of the interval's parts. A host sends few ICMP errors a
// second, however many datagrams it rejects, so that their number alone does not tell a program that is gone from one
// that was for a moment.
func (b *backend) isSteady() bool {
	parts, with := 0, 0
	for i, s := range b.samples {
		next := b.last
		if i+1 < len(b.samples) {
			next = b.samples[i+1]
		}
		if !next.at.After(s.at) {
			continue
		}
		parts++
		if next.bad > s.bad {
			with++
		}
	}
	return with*2 >= parts
}
