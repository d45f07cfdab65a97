// SPDX-License-Identifier: Apache-2.0

// Package generation compiles services and backends into the memory that packets go by, and changes that memory while
// packets read it.
//
// A Register describes the data plane's contents. Register.Plan compares it with a wanted state and returns a Revision:
// the services that come, go or differ, each with its table (package tables), and the numbers by which packets know
// services and backends. A Revision changes nothing by itself. It is carried out in one of two ways:
//
//   - in place: Memory.PrepareOrWait finds room for all that is new and writes it where no packet reads, and fails
//     without a trace where there is none; then Publication.Publish shows it, each service in one step, and cannot
//     fail;
//   - in memory of its own: a Capacity says how large that must be, and FillMap fills a map with it.
//
// Then Register.Commit makes the revision the register's present state. The package promises four things: a packet sees
// a service wholly as it was or wholly as it is; memory that a packet may be reading is reused only after a grace
// period; a backend keeps its index, and so its counters and flows, for as long as it is configured; and packets never
// mistake an index or an id with a new owner for that of its last owner. A Register can be saved into a snapshot and
// restored from it.
//
// The package loads and attaches no program, and knows no interface, pin or process: package datapath does.
package generation
