// SPDX-License-Identifier: Apache-2.0

// Package takeover finds the data plane that an earlier process has kept, and opens it for this one: the newest set of
// pins whose programs are attached, the snapshot that its memory names, its shared maps, and the links and filters that
// keep programs attached. It recreates shared maps that are in another build's layout. None of it affects packets: the
// attached programs keep running until package datapath replaces them.
package takeover
