// SPDX-License-Identifier: Apache-2.0

// Package cmdtest has what the tests of commands share: golden files, and a balancer that answers with a
// status of theirs.
package cmdtest
