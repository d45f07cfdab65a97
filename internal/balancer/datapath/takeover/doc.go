// SPDX-License-Identifier: Apache-2.0

// Package takeover finds the data plane that an earlier process has kept, and opens it for this one: the newest set of
// pins whose programs are attached, the snapshot that its memory names, its shared maps, and the links and filters that
// keep programs on interfaces. Shared maps in another build's layout it makes again. Packets notice nothing of it, and
// the attached programs go on; package datapath replaces them.
package takeover
