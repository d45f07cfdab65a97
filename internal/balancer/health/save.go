// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
)

// stale is how old the last answer may be of a verdict that is taken over. Older, it says less
// than nothing: a backend is better taken for unknown.
const stale = time.Hour

// saved is the form of Save. Its times are those of the wall clock of Clock.
type saved struct {
	Version int                    `json:"version"`
	Clock   clock.Reading          `json:"clock,omitzero"`
	Targets map[uint64]targetState `json:"targets"`
}

const version = 1

func (t *target) savedState() targetState {
	return targetState{State: t.state, Since: t.since, Last: t.last, Text: t.text, Reason: t.reason, Weight: t.weight,
		Drain: t.drain, Reported: t.reported, Finishing: t.finishing, Unasked: t.uncheckedFor}
}

// Save returns the verdicts for a later process's Restore: those of endpoints, whatever services
// have them. It returns nil where nothing is watched.
func (e *Engine) Save() []byte {
	e.mu.Lock()
	if len(e.targets) == 0 {
		e.mu.Unlock()
		return nil
	}
	s := saved{Version: version, Clock: e.clock(), Targets: make(map[uint64]targetState, len(e.targets))}
	for _, t := range e.targets {
		if t.state != Unknown {
			m := t.savedState()
			m.Since, m.Last = s.Clock.ToWall(m.Since), s.Clock.ToWall(m.Last)
			s.Targets[t.id] = m
		}
	}
	e.mu.Unlock()
	text, err := json.Marshal(s)
	if err != nil { // cannot be: these are strings, numbers and times of this century
		panic(err)
	}
	return text
}

// Restore takes over what Save returned, for targets that Watch names later. They keep those verdicts until their own
// answers say otherwise, if these are not an hour old. Absent is for how long no process asked: where that is longer
// than a check's interval, it is asked at once, and a change is found faster (confirm.go).
func (e *Engine) Restore(text []byte, absent time.Duration) error {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("reading saved verdicts of health checks: %w", err)
	}
	if s.Version != version {
		return fmt.Errorf("reading saved verdicts of health checks: they have version %d, not %d", s.Version, version)
	}
	now := e.clock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, m := range s.Targets {
		m.Since, m.Last = s.Clock.FromWall(m.Since, now), s.Clock.FromWall(m.Last, now)
		if m.State == Healthy || m.State == Failing {
			m.Unasked += absent
			e.previous[id] = m
		}
	}
	return nil
}

// restoreState gives a new target the remembered state of a former one with the same request. e.mu is held.
func (e *Engine) restoreState(t *target) {
	m, ok := e.dropped[t.id]
	if !ok {
		m, ok = e.previous[t.id]
	}
	if !ok {
		return
	}
	delete(e.dropped, t.id)
	delete(e.previous, t.id)
	if m.Unasked > t.key.spec.check.Interval {
		t.uncheckedFor, t.confirmChecksLeft = m.Unasked, confirmChecksFor(t)
	}
	if time.Since(m.Last) > stale {
		return
	}
	t.state, t.since, t.last, t.text, t.reason = m.State, m.Since, m.Last, m.Text, m.Reason
	t.selfReport = selfReport{weight: m.Weight, reported: m.Reported, drain: m.Drain, finishing: m.Finishing}
}
