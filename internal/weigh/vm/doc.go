// SPDX-License-Identifier: Apache-2.0

// Package vm runs jeoul in a virtual machine of its own: a kernel of Debian's, a file system in memory with jeoul and
// the programs that its laboratory needs, and QEMU. It is for subjects whose kernel part this machine's kernel lacks,
// and for counting instructions.
//
// [Run] is the outside: it fetches nothing, needs a [Kernel] (see [Fetch]), builds the file system, chooses KVM or
// emulation, and listens to a serial port over which the machine reports ([Reader], [WriteFrame]). [Init] is the
// inside: the machine's first process. The port is the only way in or out: the machine has no network and no disk.
//
// With [Counting], QEMU emulates one processor whose clock advances by a nanosecond with each instruction (-icount
// shift=0) and, while nothing runs, jumps to the next timer (sleep=off). The speed and the load of this machine make no
// difference to measurements with that clock. It does not include caches, branch prediction and memory bandwidth.
package vm
