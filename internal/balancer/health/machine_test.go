// SPDX-License-Identifier: Apache-2.0

package health

import "testing"

func TestMachine(t *testing.T) {
	for _, c := range []struct {
		name       string
		rise, fall uint32
		answers    string // + passed, - failed, * passed permanently, / failed permanently
		states     string // after each: u h f
		doubt      string // after each: . or ?
	}{
		{"rises", 2, 3, "++++", "uhhh", "...."},
		{"falls", 2, 3, "++---", "uhhhf", "..??."},
		{"counts in a row, not in all", 2, 3, "++--+--+---", "uhhhhhhhhhf", "..??.??.??."},
		{"falls from the start", 2, 3, "---", "uuf", "??."},
		{"rises again", 2, 3, "---+-++", "uuffffh", "??.?.?."},
		{"never decides while answers differ", 2, 2, "+-+-+-", "uuuuuu", ".?.?.?"},
		{"at once", 1, 1, "+-+-", "hfhf", "...."},
		{"says itself", 5, 5, "*/*", "hfh", "..."},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine{state: Unknown}
			for i, answer := range c.answers {
				before := m.state
				changed := m.count(answer == '+' || answer == '*', answer == '*' || answer == '/', c.rise, c.fall)
				if got := string(m.state[0]); got != c.states[i:i+1] {
					t.Errorf("after %q: %s, not %s", c.answers[:i+1], got, c.states[i:i+1])
				}
				if changed != (m.state != before) {
					t.Errorf("after %q: changed is %t", c.answers[:i+1], changed)
				}
				if got := m.doubtful(); got != (c.doubt[i] == '?') {
					t.Errorf("after %q: doubtful is %t", c.answers[:i+1], got)
				}
				if m.passed > 0 == (m.failed > 0) {
					t.Errorf("after %q: %d passed in a row and %d failed", c.answers[:i+1], m.passed, m.failed)
				}
			}
		})
	}
}
