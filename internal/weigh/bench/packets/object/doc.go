// SPDX-License-Identifier: Apache-2.0

// Package object makes a subject of `jeoul bench packets` of anyone's eBPF object: an ELF file with a program
// of XDP or TC, and a setup, a file of YAML that says what to put into its maps and variables, which packets to
// send, and by what the program returns and counts one knows that it did with them what it is measured for.
// It knows nothing of what the program is.
package object
