// SPDX-License-Identifier: Apache-2.0

// Package memleft reads how much more memory this process may allocate: the machine's available memory, within the
// limits of the process's control groups.
package memleft
