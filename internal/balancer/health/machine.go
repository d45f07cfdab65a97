// SPDX-License-Identifier: Apache-2.0

package health

// machine makes a state of answers: rise and fall count those in a row.
type machine struct {
	state          State
	passed, failed uint32
}

// count counts an answer, and reports whether it has changed the state.
func (m *machine) count(passed, final bool, rise, fall uint32) bool {
	before := m.state
	if passed {
		m.passed, m.failed = m.passed+1, 0
		if final || m.passed >= rise {
			m.state = Healthy
		}
	} else {
		m.passed, m.failed = 0, m.failed+1
		if final || m.failed >= fall {
			m.state = Failing
		}
	}
	return m.state != before
}

// doubtful reports whether the last answers speak against the state. (An endpoint that is new is not doubted as long as
// it passes: all of them are new when a balancer starts.)
func (m *machine) doubtful() bool {
	if m.state == Failing {
		return m.passed > 0
	}
	return m.failed > 0
}
