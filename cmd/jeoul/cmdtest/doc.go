// SPDX-License-Identifier: Apache-2.0

// Package cmdtest holds the parts that tests of commands share: golden files, and a balancer that answers with a given
// status.
package cmdtest
