// SPDX-License-Identifier: Apache-2.0

package vm

import "errors"

// Errors that callers may test for.
var (
	// ErrMissing means that a required program is not installed.
	ErrMissing = errors.New("not installed")
	// ErrArch means that machines do not have an architecture, or that a program is of another architecture than its
	// machine.
	ErrArch = errors.New("of the wrong architecture")
	// ErrKernel means that a directory holds no usable kernel.
	ErrKernel = errors.New("not a usable kernel")
	// ErrFrame means that the bytes from the port are no frame of a machine.
	ErrFrame = errors.New("not a frame")
	// ErrMachine means that a machine did not come up, or ended without reporting how.
	ErrMachine = errors.New("the virtual machine failed")
	// ErrLimit means that a machine was stopped because its time was over.
	ErrLimit = errors.New("the time limit was reached")
)
