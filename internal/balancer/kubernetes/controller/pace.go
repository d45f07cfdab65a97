// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// The time for which changes are collected before they are pushed: a rollout makes many at once.
const (
	leastCollecting = 50 * time.Millisecond
	// mostCollecting leaves the greater part of the second in which a change should be in the data plane.
	mostCollecting = 250 * time.Millisecond
	// collectingPerPush is the ratio of collecting to pushing while changes do not cease. A push costs the balancer a
	// fixed time besides that of its changes: without pauses, pushes of a few changes each would occupy a core.
	collectingPerPush = 2
)

// pace is when the last push ended, and how long it took.
type pace struct {
	ended time.Time
	took  time.Duration
}

// collecting returns for how long changes are collected from now on.
func (p pace) collecting(now time.Time) time.Duration {
	left := p.ended.Add(collectingPerPush * p.took).Sub(now)
	return min(max(left, leastCollecting), mostCollecting)
}

// measure runs a push, and notes its time.
func (p *pace) measure(push func()) {
	began := time.Now()
	push()
	p.ended = time.Now()
	p.took = p.ended.Sub(began)
}
