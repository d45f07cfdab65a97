// SPDX-License-Identifier: Apache-2.0

// Package tables compiles a service's backends to the table that packets choose one by, and follows that table through
// changes. A Recipe says of what a Table is made, by the scheduler; a View is the tables of a service that packets see,
// during a transition the one before too; a SlotSet is which slots have changed hands. All of them are values: a change
// makes others. The package knows no eBPF but for the layout of a table in memory.
package tables
