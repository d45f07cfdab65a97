// SPDX-License-Identifier: Apache-2.0

// Package mapmem is the memory that packets and this program read and write at the same time, in words of 64 bits, and
// the functions that both compute alike: hashes, and the layout of addresses and ports. Its parts are pieces of an
// arena, rows by index, and directories (hash tables) that change while packets search them.
//
// It promises that a reader sees each word as it was or as it is, whole, in the order in which the words are written,
// and that memory that a reader may hold is reused after a grace period only. It knows neither flows nor services.
package mapmem
