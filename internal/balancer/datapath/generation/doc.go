// SPDX-License-Identifier: Apache-2.0

// Package generation compiles services and backends into the memory that the programs read, and changes that memory
// while they read it.
//
// A Register describes the data plane's contents. Register.Plan compares it with a desired state and returns a
// Revision: the services that are added, removed or changed, each with its table (package tables), and the numbers by
// which the programs identify services and backends. A Revision by itself changes nothing. It is applied in one of two
// ways:
//
//   - in place: Memory.PrepareOrWait allocates room for all new values and writes them where no packet reads, or fails
//     without a change; then Publication.Publish publishes them, each service atomically, and cannot fail;
//   - in new memory: a Capacity is its size, and FillMap fills a map with it.
//
// Then Register.Commit makes the revision the register's present state. The package guarantees four things: a packet
// sees a service as it was before the change or as it is after it, never a mixture; memory that a packet may be reading
// is reused only after a grace period; a backend keeps its index, and so its counters and flows, for as long as it is
// configured; and packets never mistake an index or an id with a new owner for that of the previous owner. A Register
// can be saved into a snapshot and restored from it.
//
// The package loads and attaches no program, and knows no interface, pin or process: package datapath does.
package generation
