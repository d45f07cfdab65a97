// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// A balancer tells others of a flow within half a second after its proof. So a connection that is younger when packets
// move to another balancer may break; one that is older may not.

// young is how old a connection is at most that balancers need not have told each other of.
const young = time.Second

// ageWhenMoved says how old a broken connection was when packets moved between balancers the last time before it was
// found broken, and how long after that it was; negative where it was opened later. Without such a change ok is false.
func (c *changeTrial) ageWhenMoved(b live.Break) (age, after time.Duration, change int, ok bool) {
	for i, moved := range c.moved {
		if since := b.At.Sub(moved); since >= 0 {
			age, after, change, ok = b.Age-since, since, i, true
		}
	}
	return age, after, change, ok
}

// writeAges counts broken connections by their age when packets moved. What broke before the first move had no balancer
// to be told to, and counts as older.
func (c *changeTrial) writeAges(e changeEvent, counts live.Counts, m map[string]float64) {
	if len(c.moved) == 0 {
		return
	}
	m[results.BrokenYoung], m[results.BrokenOlder] = 0, 0
	for _, b := range c.samples(e, counts) {
		if age, _, _, moved := c.ageWhenMoved(b); moved && age < young {
			m[results.BrokenYoung]++
		} else {
			m[results.BrokenOlder]++
		}
	}
}

// broken describes a broken connection, and when it broke.
func (c *changeTrial) broken(b live.Break) string {
	if len(c.moved) == 0 {
		return b.String()
	}
	age, after, change, moved := c.ageWhenMoved(b)
	const exact = time.Millisecond
	switch {
	case !moved:
		return fmt.Sprintf("%s, before packets moved between balancers", b)
	case age < 0:
		return fmt.Sprintf("%s, opened %v after move %d of %d between balancers", b, -age.Round(exact), change+1,
			len(c.moved))
	}
	return fmt.Sprintf("%s, %v after move %d of %d between balancers, when it was %v old", b, after.Round(exact),
		change+1, len(c.moved), age.Round(exact))
}
