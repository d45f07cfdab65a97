// SPDX-License-Identifier: Apache-2.0

// Package cmdkit has what commands share: the flags for the running balancer and for the output, tables and texts for a
// person, and what is known of their own process.
package cmdkit
