// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// A backend that begins to serve in a service with slow_start gets a share of new flows that grows
// in slowSteps steps from a twentieth of its weight, by a tenth each, to all of it. Each step is a
// change for the data plane, so that steps of several backends that are due within slowPause are
// made together.
const (
	slowSteps = 10
	slowPause = 100 * time.Millisecond
)

// start is how far a backend has come in a service with slow_start.
type start struct {
	// serves: it could take new flows, as far as operations, its checks and its path say.
	serves bool
	// unmet: nothing was found of it yet since its service began, and so nothing of it begins
	// when its path is found.
	unmet bool
	// began is when it began to serve; zero: long ago.
	began time.Time
	// share is what it gets of its weight, in per cent.
	share uint16
}

// slowShare is the share of its weight, in per cent, that a backend gets so long after it began,
// and in how long there is another step; 0: there is none.
func slowShare(since, duration time.Duration) (share uint16, next time.Duration) {
	if since >= duration {
		return 100, 0
	}
	step := duration / slowSteps
	k := min(max(since, 0)/step, slowSteps-1)
	if next = (k+1)*step - since; k == slowSteps-1 {
		next = duration - since
	}
	return uint16(k)*100/slowSteps + 100/slowSteps/2, next
}

// begin returns the start of a backend in the next view, of which m is known now.
func (s start) begin(m *member, out bool, duration time.Duration, now time.Time) start {
	is := s
	is.unmet = s.unmet && !m.reached && m.state != lb.Failing
	switch is.serves = !out && m.serves(); {
	case is.unmet:
		is.serves = true
	case !is.serves:
		is.began = time.Time{}
	case !s.serves:
		is.began = now
	}
	is.share = 100
	if !is.began.IsZero() {
		if is.share, _ = slowShare(now.Sub(is.began), duration); is.share == 100 {
			is.began = time.Time{}
		}
	}
	return is
}

// findStarts takes over from the former view, which may be nil, how far the backends have come.
// One that is new in a service that was there, by its endpoint or its name, begins to serve; in a service that is new
// all do, and none begins, but for one that its checks, of a process before, have found healthy of late.
func (v *view) findStarts(former *view) {
	v.starts = make([][]start, len(v.cfg.Services))
	for i, s := range v.cfg.Services {
		if s.SlowStart == 0 {
			continue
		}
		v.starts[i] = make([]start, len(s.Backends))
		old := former.byKey(s.Key())
		for j, b := range s.Backends {
			at := &v.starts[i][j]
			if old != nil {
				*at = former.startUnder(b.Name, s.BackendKey(b))
				continue
			}
			*at = start{serves: true, unmet: true}
			if now := v.verdict(use{i, j}); now.state == lb.Healthy && v.now.Sub(now.since) < s.SlowStart {
				at.began = now.since
			}
		}
	}
}

// slowing says whether a backend has less than its weight.
func (s start) slowing() bool { return s.serves && !s.began.IsZero() }

// nextStep returns the services of which a backend is due for another share, and in how long the
// next one is; 0 where none is.
func (v *view) nextStep(now time.Time) (due []int, in time.Duration) {
	for i := range v.starts {
		is := false
		for _, s := range v.starts[i] {
			if !s.slowing() {
				continue
			}
			share, next := slowShare(now.Sub(s.began), v.cfg.Services[i].SlowStart)
			is = is || share != s.share
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

// withSteps returns the view with the shares of these services as of now.
func (v *view) withSteps(services []int, now time.Time) *view {
	next := *v
	next.now = now
	next.state.Services, next.selected, next.starts = slices.Clone(v.state.Services), slices.Clone(v.selected),
		slices.Clone(v.starts)
	for _, i := range services {
		next.state.Services[i] = sharing(next.join(i), &v.state.Services[i])
	}
	return &next
}

// startOf returns how far a backend has come, which does not serve yet where there is none, and
// does where its service has no slow start.
func (v *view) startOf(key lb.BackendKey) start {
	at := v.find(key)
	switch {
	case at == nil:
		return start{}
	case v.starts == nil || v.starts[at.i] == nil:
		return start{serves: true}
	}
	return v.starts[at.i][at.j]
}

// startUnder is startOf for a backend of this name: where the endpoint had another name before, another process is
// taken to be there, which begins to serve.
func (v *view) startUnder(name string, key lb.BackendKey) start {
	is := v.startOf(key)
	if at := v.find(key); at != nil && at.backend.Name != name && !is.unmet {
		return start{}
	}
	return is
}

// showStarts shows which backends of service i are in slow start.
func (v *view) showStarts(i int, status *ops.Service) {
	s := v.cfg.Services[i]
	status.SlowStartSeconds = s.SlowStart.Seconds()
	for j, is := range v.starts[i] {
		if is.slowing() {
			status.Backends[j].SlowStart = &ops.SlowStart{Percent: is.share, Until: is.began.Add(s.SlowStart)}
		}
	}
}
