// SPDX-License-Identifier: Apache-2.0

// Package mapmem is the memory that the eBPF programs and this process read and write at the same time, in words of 64
// bits, and the functions that both sides share: hashes, and the layout of addresses and ports. Its parts are the
// extents of an arena, rows by index, and directories (hash tables) that change while packets search them.
//
// It guarantees that a reader sees no torn word, and sees words in the order in which they are written, and that memory
// that a reader may be reading is reused only after a grace period. It knows neither flows nor services.
package mapmem
