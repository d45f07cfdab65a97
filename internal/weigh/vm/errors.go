// SPDX-License-Identifier: Apache-2.0

package vm

import "errors"

// Errors that callers may test for.
var (
	// ErrMissing says that a program that is needed is not installed.
	ErrMissing = errors.New("not installed")
	// ErrArch says that machines have no such architecture, or that a program is of another than its machine.
	ErrArch = errors.New("of the wrong architecture")
	// ErrKernel says that a directory holds no kernel that can be used.
	ErrKernel = errors.New("not a usable kernel")
	// ErrFrame says that the bytes that came over the port are no frame of a machine's.
	ErrFrame = errors.New("not a frame")
	// ErrMachine says that a machine did not come up, or ended without telling how.
	ErrMachine = errors.New("the virtual machine failed")
	// ErrLimit says that a machine was ended because its time was over.
	ErrLimit = errors.New("the time limit was reached")
)
