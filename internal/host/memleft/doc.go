// SPDX-License-Identifier: Apache-2.0

// Package memleft reads how much memory this process may still take: of what the machine has available, what its
// control groups leave.
package memleft
