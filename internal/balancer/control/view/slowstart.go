// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// A backend that begins to serve in a service with slow_start gets a share of new flows that grows
// in SlowSteps steps from a twentieth of its weight, by a tenth each, to all of it. Each step is a
// change for the data plane, so that steps of several backends that are due within SlowPause are
// made together.
const (
	SlowSteps = 10
	SlowPause = 100 * time.Millisecond
)

// Start is the progress of a backend in a service with slow_start.
type Start struct {
	// serves: operations, its checks and its path let it take new flows.
	serves bool
	// neverReached: it has had no path since its service was added, so that no slow start begins when the path is
	// resolved.
	neverReached bool
	// Began is when it began to serve; zero: its slow start is over.
	Began time.Time
	// Share is its share of its weight, in per cent.
	Share uint16
}

// slowShare returns a backend's share of its weight, in per cent, this long after it began to serve, and the time until
// the next step; 0: there is none.
func slowShare(since, duration time.Duration) (share uint16, next time.Duration) {
	if since >= duration {
		return 100, 0
	}
	step := duration / SlowSteps
	k := min(max(since, 0)/step, SlowSteps-1)
	if next = (k+1)*step - since; k == SlowSteps-1 {
		next = duration - since
	}
	return uint16(k)*100/SlowSteps + 100/SlowSteps/2, next
}

// begin returns the Start of a backend in the next view, in which its state is m.
func (s Start) begin(m *member, out bool, duration time.Duration, now time.Time) Start {
	next := s
	next.neverReached = s.neverReached && !m.reached && m.State != lb.Failing
	switch next.serves = !out && m.serves(); {
	case next.neverReached:
		next.serves = true
	case !next.serves:
		next.Began = time.Time{}
	case !s.serves:
		next.Began = now
	}
	next.Share = 100
	if !next.Began.IsZero() {
		if next.Share, _ = slowShare(now.Sub(next.Began), duration); next.Share == 100 {
			next.Began = time.Time{}
		}
	}
	return next
}

// findStarts takes the progress of backends over from the previous view, which may be nil. A backend that is new in an
// existing service, by its endpoint or its name, begins a slow start. In a new service, no backend does, except one
// that the checks of the previous process have found healthy only recently.
func (v *View) findStarts(previous *View) {
	v.Starts = make([][]Start, len(v.Config.Services))
	for i := range v.Config.Services {
		if v.Config.Services[i].SlowStart == 0 {
			continue
		}
		s := v.Config.Services[i]
		v.Starts[i] = make([]Start, len(s.Backends))
		previousService := previous.byKey(s.Key())
		for j, b := range s.Backends {
			at := &v.Starts[i][j]
			if previousService != nil {
				*at = previous.startUnder(b.Name, s.BackendKey(b))
				continue
			}
			*at = Start{serves: true, neverReached: true}
			if now := v.Verdict(Use{i, j}); now.State == lb.Healthy && v.Now.Sub(now.Since) < s.SlowStart {
				at.Began = now.Since
			}
		}
	}
}

// InSlowStart reports whether a backend has less than its weight.
func (s Start) InSlowStart() bool { return s.serves && !s.Began.IsZero() }

// NextStep returns the services that have a backend whose next step is due, and the time until the next step after
// that; 0 if there is none.
func (v *View) NextStep(now time.Time) (due []int, in time.Duration) {
	for i := range v.Starts {
		steps := false
		for _, s := range v.Starts[i] {
			if !s.InSlowStart() {
				continue
			}
			share, next := slowShare(now.Sub(s.Began), v.Config.Services[i].SlowStart)
			steps = steps || share != s.Share
			if next > 0 && (in == 0 || next < in) {
				in = next
			}
		}
		if steps {
			due = append(due, i)
		}
	}
	return due, in
}

// WithSteps returns the view with the shares of these services as of now.
func (v *View) WithSteps(services []int, now time.Time) *View {
	next := *v
	next.Now = now
	next.State.Services, next.Selected, next.Starts = slices.Clone(v.State.Services), slices.Clone(v.Selected),
		slices.Clone(v.Starts)
	for _, i := range services {
		next.State.Services[i] = shareSlices(next.buildService(i), &v.State.Services[i])
	}
	return &next
}

// StartOf returns the state of a backend's slow start: one that serves if its service has no slow start, and the zero
// Start, which does not serve, if the view has no such backend.
func (v *View) StartOf(key lb.BackendKey) Start {
	at := v.Find(key)
	switch {
	case at == nil:
		return Start{}
	case v.Starts == nil || v.Starts[at.I] == nil:
		return Start{serves: true}
	}
	return v.Starts[at.I][at.J]
}

// startUnder is StartOf for a backend of this name: if the endpoint had another name before, it is assumed to be
// another process, which begins to serve.
func (v *View) startUnder(name string, key lb.BackendKey) Start {
	start := v.StartOf(key)
	if at := v.Find(key); at != nil && at.Backend.Name != name && !start.neverReached {
		return Start{}
	}
	return start
}

// FillSlowStarts writes the slow starts of service i into its status.
func (v *View) FillSlowStarts(i int, status *ops.Service) {
	s := v.Config.Services[i]
	status.SlowStartSeconds = s.SlowStart.Seconds()
	for j, start := range v.Starts[i] {
		if start.InSlowStart() {
			status.Backends[j].SlowStart = &ops.SlowStart{Percent: start.Share, Until: start.Began.Add(s.SlowStart)}
		}
	}
}
