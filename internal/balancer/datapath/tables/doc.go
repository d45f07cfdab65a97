// SPDX-License-Identifier: Apache-2.0

// Package tables compiles a service's backends to the table that packets choose one by, and follows that table through
// changes. A Recipe has the inputs of a Table, by the scheduler; a View has the tables of a service that packets see,
// during a transition the previous one, too; a SlotSet has the slots that have changed hands. All of them are
// immutable: a change makes others. The package knows no eBPF but for the layout of a table in memory.
package tables
