// SPDX-License-Identifier: Apache-2.0

// Package checkpath sends health checks through the data plane: it probes each backend at its service's VIP, by packets
// that take the same path as the service's own.
package checkpath
