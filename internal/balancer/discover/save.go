// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// version is the version of the saved file.
const version = 1

// saved is the file of the known sets. Its times are those of the wall clock of Clock.
type saved struct {
	Version int                    `json:"version"`
	Clock   clock.Reading          `json:"clock"`
	Origins map[string]savedOrigin `json:"origins"`
}

type savedOrigin struct {
	Found []Found   `json:"found"`
	Taken time.Time `json:"taken,omitzero"`
	// Since is the time since which there has been no newer set; zero: the origin had answered.
	Since   time.Time `json:"since,omitzero"`
	Problem string    `json:"problem,omitempty"`
	Empty   bool      `json:"empty,omitempty"`
	// Held are the backends that the last answer lacked, by their endpoints, with the time since which answers have.
	Held map[netip.AddrPort]time.Time `json:"held,omitempty"`
}

// save writes the known sets of the origins that have answered. The lock is held.
func (e *Engine) save() {
	if e.opt.Memory == nil || len(e.origins) == 0 && !e.unsaved {
		return
	}
	s := saved{Version: version, Clock: e.opt.Clock(), Origins: map[string]savedOrigin{}}
	for k, o := range e.origins {
		if !o.taken.IsZero() {
			s.Origins[k] = savedOrigin{o.found, s.Clock.ToWall(o.taken), s.Clock.ToWall(o.since), o.problem, o.empty,
				convertTimes(o.held, s.Clock.ToWall)}
		}
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = e.opt.Memory.Save(text)
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != e.saveProblem && !errors.Is(err, durable.ErrNotWritten) {
		e.opt.Log.Warn("saving which backends were discovered (a process that follows begins without them): " + why)
	}
	e.saveProblem, e.unsaved = why, err != nil
}

// restore takes over the sets that the previous process has saved. The time of use of each set starts when it was
// saved, because no query has been made since.
func (e *Engine) restore() {
	if e.opt.Memory == nil {
		return
	}
	text, err := e.opt.Memory.Load()
	if err == nil && len(text) > 0 {
		e.restored, err = decode(text, e.opt.Clock())
	}
	if err != nil {
		e.opt.Log.Warn(fmt.Sprintf(
			"discovered backends come with the first answers, and not from the process before: %v", err))
	}
}

// decode parses the saved sets.
func decode(text []byte, now clock.Reading) (map[string]*originState, error) {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read the saved discovered backends: %w", err)
	}
	if s.Version != version {
		return nil, fmt.Errorf("read the saved discovered backends: it has version %d, not %d", s.Version, version)
	}
	all := map[string]*originState{}
	for key, o := range s.Origins {
		since := o.Since
		if since.IsZero() {
			since = s.Clock.Wall
		}
		all[key] = &originState{found: o.Found, taken: s.Clock.FromWall(o.Taken, now), since: s.Clock.FromWall(since,
			now),
			problem: o.Problem, empty: o.Empty, awaited: true,
			held: convertTimes(o.Held, func(at time.Time) time.Time { return s.Clock.FromWall(at, now) })}
	}
	return all, nil
}

// convertTimes converts the times of held backends.
func convertTimes(held map[netip.AddrPort]time.Time, convert func(time.Time) time.Time) map[netip.AddrPort]time.Time {
	if held == nil {
		return nil
	}
	all := make(map[netip.AddrPort]time.Time, len(held))
	for at, lacking := range held {
		all[at] = convert(lacking)
	}
	return all
}
