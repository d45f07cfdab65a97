// SPDX-License-Identifier: Apache-2.0

// Package object makes any eBPF object a subject of `jeoul bench packets`. The object is an ELF file with a program of
// XDP or TC. A setup, a YAML file, has the contents of the object's maps and variables and the packets to send. It also
// has the return code and the counters that prove that the program did the measured work with the packets. The package
// does not depend on the program's purpose.
package object
