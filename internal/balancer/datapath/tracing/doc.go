// SPDX-License-Identifier: Apache-2.0

// Package tracing translates the records of the traced programs, runs the programs on hypothetical packets, and updates
// running captures when a change renumbers their services and backends. The programs themselves, and the slots of
// captures, are in package traced.
package tracing
