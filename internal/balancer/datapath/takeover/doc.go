// SPDX-License-Identifier: Apache-2.0

// Package takeover finds the data plane that a process before has kept, and opens it for this one: the newest set of
// pins whose programs are attached, the snapshot that its memory names, its shared maps, and the links and filters that
// keep programs on interfaces. Shared maps that another build has laid out differently it makes anew. Packets notice
// nothing of it, and what is attached goes on; to take its place is datapath's.
package takeover
