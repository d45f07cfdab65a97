// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the end-to-end tests' parts of a laboratory: real servers (nginx, BIND), clients that check their
// answers, a capture of every packet that reaches a client, a client behind a narrow link, and an inspection of the
// remains of a program on a host. Only tests use it: those of the command jeoul, e2e_*_test.go in the directory above,
// whose test binary is the program that they start.
package e2e

import (
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// WaitLimit is testenv.WaitLimit.
var WaitLimit = testenv.WaitLimit

// Inside is a place to run code in: a host of a laboratory, or a namespace.
type Inside interface{ Do(f func() error) error }

// in runs f inside, and fails the test if f returns an error.
func in(tb testing.TB, where Inside, f func() error) {
	tb.Helper()
	if err := where.Do(f); err != nil {
		tb.Fatal(err)
	}
}
