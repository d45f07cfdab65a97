// SPDX-License-Identifier: Apache-2.0

// Package generation compiles services and backends into the memory that packets go by, and changes that memory while
// packets read it.
//
// A Register says what the data plane has. Register.Plan compares it with a wanted state and returns a Revision: the
// services that come, go or differ, each with its table (package tables), and the numbers by which packets know
// services and backends. A Revision changes nothing by itself. It becomes true in one of two ways:
//
//   - in place: Memory.PrepareOrWait finds room for all that is new and writes it where no packet reads, and fails
//     without a trace where there is none; then Publication.Publish shows it, each service in one step, and cannot
//     fail;
//   - in memory of its own: a Capacity says how large that must be, and FillMap fills a map with it.
//
// Then Register.Commit notes that it is made. What the package promises: a packet sees a service as it was or as it is,
// whole; what a packet may have in hand stays until it has gone; a backend keeps its index, and with that its counters
// and flows, for as long as it is configured; and an index or an id that gets another owner is never taken for the one
// before. A Register can be saved into a snapshot and restored from it.
//
// The package loads and attaches no program, and knows no interface, pin or process: that is the data plane's.
package generation
