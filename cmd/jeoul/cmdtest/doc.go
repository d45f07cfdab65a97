// SPDX-License-Identifier: Apache-2.0

// Package cmdtest has the parts that tests of commands share: golden files, and a balancer that answers with a status
// of theirs.
package cmdtest
