// SPDX-License-Identifier: Apache-2.0

// Package cmdkit is what commands share: the flag for their output, tables, and what is known of their own process.
package cmdkit
