// SPDX-License-Identifier: Apache-2.0

// Package tables compiles a service's backends to the table from which packets select one, and tracks that table
// through changes. A Recipe has the inputs of a Table; a View has the present table of a service and, during a
// transition, the previous one, too; a SlotSet has the slots whose backend has changed. All of them are immutable: a
// change makes others. The package knows no eBPF except for the layout of a table in memory.
package tables
