// SPDX-License-Identifier: Apache-2.0

// Package memleft reads how much memory this process may still take: of the machine's available memory, the part that
// its control groups leave.
package memleft
