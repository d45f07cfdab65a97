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

// Start is how far a backend has come in a service with slow_start.
type Start struct {
	// serves: it could take new flows, as far as operations, its checks and its path say.
	serves bool
	// unmet: nothing was found of it yet since its service began, and so nothing of it begins
	// when its path is found.
	unmet bool
	// Began is when it began to serve; zero: long ago.
	Began time.Time
	// Share is the share of its weight that it gets, in per cent.
	Share uint16
}

// slowShare is the share of its weight, in per cent, that a backend gets so long after it began,
// and in how long there is another step; 0: there is none.
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

// begin returns the start of a backend in the next view, of which m is known now.
func (s Start) begin(m *member, out bool, duration time.Duration, now time.Time) Start {
	is := s
	is.unmet = s.unmet && !m.reached && m.State != lb.Failing
	switch is.serves = !out && m.serves(); {
	case is.unmet:
		is.serves = true
	case !is.serves:
		is.Began = time.Time{}
	case !s.serves:
		is.Began = now
	}
	is.Share = 100
	if !is.Began.IsZero() {
		if is.Share, _ = slowShare(now.Sub(is.Began), duration); is.Share == 100 {
			is.Began = time.Time{}
		}
	}
	return is
}

// findStarts takes over from the former view, which may be nil, how far the backends have come. One that is new in a
// service that was there, by its endpoint or its name, begins to serve; in a service that is new all do, and none
// begins, but for one that its checks, of the previous process, have found healthy of late.
func (v *View) findStarts(previous *View) {
	v.Starts = make([][]Start, len(v.Config.Services))
	for i, s := range v.Config.Services {
		if s.SlowStart == 0 {
			continue
		}
		v.Starts[i] = make([]Start, len(s.Backends))
		old := previous.byKey(s.Key())
		for j, b := range s.Backends {
			at := &v.Starts[i][j]
			if old != nil {
				*at = previous.startUnder(b.Name, s.BackendKey(b))
				continue
			}
			*at = Start{serves: true, unmet: true}
			if now := v.Verdict(Use{i, j}); now.State == lb.Healthy && v.Now.Sub(now.Since) < s.SlowStart {
				at.Began = now.Since
			}
		}
	}
}

// Slowing says whether a backend has less than its weight.
func (s Start) Slowing() bool { return s.serves && !s.Began.IsZero() }

// NextStep returns the services of which a backend is due for another share, and in how long the
// next one is; 0 where none is.
func (v *View) NextStep(now time.Time) (due []int, in time.Duration) {
	for i := range v.Starts {
		is := false
		for _, s := range v.Starts[i] {
			if !s.Slowing() {
				continue
			}
			share, next := slowShare(now.Sub(s.Began), v.Config.Services[i].SlowStart)
			is = is || share != s.Share
			if next > 0 && (in == 0 || next < in) {
				in = next
			}
		}
		if is {
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
		next.State.Services[i] = sharing(next.join(i), &v.State.Services[i])
	}
	return &next
}

// StartOf returns the state of a backend's slow start: that of a backend that serves where its service has none, and
// the zero Start, which does not serve, where the view has no such backend.
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

// startUnder is StartOf for a backend of this name: where the endpoint had another name before, another process is
// taken to be there, which begins to serve.
func (v *View) startUnder(name string, key lb.BackendKey) Start {
	is := v.StartOf(key)
	if at := v.Find(key); at != nil && at.Backend.Name != name && !is.unmet {
		return Start{}
	}
	return is
}

// ShowStarts shows which backends of service i are in slow start.
func (v *View) ShowStarts(i int, status *ops.Service) {
	s := v.Config.Services[i]
	status.SlowStartSeconds = s.SlowStart.Seconds()
	for j, is := range v.Starts[i] {
		if is.Slowing() {
			status.Backends[j].SlowStart = &ops.SlowStart{Percent: is.Share, Until: is.Began.Add(s.SlowStart)}
		}
	}
}
