// SPDX-License-Identifier: Apache-2.0

package datapath

// move brings what is remembered from one set of tables to another, of other sizes,
// while packets go on: once when the programs that use the new ones are ready, and once
// more when those that use the old ones have gone. The full-NAT flows have not begun
// then: see adopt.
type move struct {
	janitor  *janitor
	from, to *shared
	begun    bool
}

// begin copies what there is. From then on until the janitor is told of the new tables,
// nothing is forgotten: it would be in one and not in the other.
func (m *move) begin() {
	if m.from == nil || m.begun || !m.needed() {
		return
	}
	m.begun = true
	m.janitor.freeze(true)
	m.copy()
}

func (m *move) needed() bool {
	return m.from.proven != m.to.proven || m.from.unproven != m.to.unproven
}

// finish copies what packets have begun and ended since.
func (m *move) finish() {
	if m.begun {
		waitForReaders()
		m.copy()
	}
}

// cancel leaves it at the old tables.
func (m *move) cancel() {
	if m.begun {
		m.janitor.freeze(false)
	}
}

func (m *move) copy() {
	if m.from.proven != m.to.proven {
		m.to.proven.adopt(m.from.proven)
	}
	if m.from.unproven != m.to.unproven {
		m.to.unproven.adopt(m.from.unproven)
	}
}
