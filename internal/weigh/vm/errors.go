// SPDX-License-Identifier: Apache-2.0

package vm

import "errors"

// Errors that callers may test for.
var (
	// ErrMissing: a program that is needed is not installed.
	ErrMissing = errors.New("not installed")
	// ErrArch: machines have no such architecture, or that a program is of another than its machine.
	ErrArch = errors.New("of the wrong architecture")
	// ErrKernel: a directory holds no kernel that can be used.
	ErrKernel = errors.New("not a usable kernel")
	// ErrFrame: the bytes that came over the port are no frame of a machine's.
	ErrFrame = errors.New("not a frame")
	// ErrMachine: a machine did not come up, or ended without telling how.
	ErrMachine = errors.New("the virtual machine failed")
	// ErrLimit: a machine was ended because its time was over.
	ErrLimit = errors.New("the time limit was reached")
)
