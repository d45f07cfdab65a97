// SPDX-License-Identifier: Apache-2.0

// Package object makes a subject of `jeoul bench packets` of anyone's eBPF object: an ELF file with a program of XDP or
// TC, and a setup, a file of YAML with the contents of its maps and variables, the packets to send, and the return code
// and counters that prove that the program did with them the work that is measured. It knows nothing of the program's
// purpose.
package object
