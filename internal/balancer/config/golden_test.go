// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden: every mistake in a file is reported at once, in the order of
// the lines.
func TestGolden(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "wrong.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("wrong.yaml", data)
	if err == nil {
		t.Fatal("no error")
	}
	got, golden := err.Error()+"\n", filepath.Join("testdata", "wrong.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("problems (-want +got; -update writes them anew):\n%s", diff)
	}
}
