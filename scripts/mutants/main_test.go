// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const program = `package changed

import "log/slog"

func less(a, b int) bool { return a < b && a != b }

func note(list []int) {
	if !less(len(list), 2) {
		clear(list)
	}
	slog.Info("noted")
}
`

// TestMutants: each expression that can have a mutant has one, a log line has none, and each file with mutants is
// replaced.
func TestMutants(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	for name, source := range map[string]string{"changed.go": program, "changed_test.go": "package changed\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	all, err := candidates(dir)
	var operators []string
	for _, m := range all {
		operators = append(operators, m.operator)
	}
	if want := []string{"&& → ||", "< → <=", "!= → ==", "dropped !", "dropped call"}; err != nil ||
		!slices.Equal(operators, want) {
		t.Fatalf("candidates %q (%v), want %q", operators, err, want)
	}
	chosen := choose(all, 5, rand.New(rand.NewPCG(1, 0)))
	if len(chosen) != 2 {
		t.Errorf("of two functions %d mutants are chosen", len(chosen))
	}
	if _, err := write(dir, to, chosen); err != nil {
		t.Fatal(err)
	}
	if written, err := filepath.Glob(filepath.Join(to, "*")); err != nil || len(written) != 3 {
		t.Errorf("%q are written (%v), want the file, one with the switch, and the overlay", written, err)
	}
	if _, is := mutate(&ast.Ident{}, nil); is {
		t.Error("a name has a mutant")
	}
}
