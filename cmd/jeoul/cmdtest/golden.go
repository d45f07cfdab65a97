// SPDX-License-Identifier: Apache-2.0

package cmdtest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update makes tests rewrite golden files, and the files that scripts compare with.
var Update = flag.Bool("update", false, "write what tests compare with anew")

// WantGolden compares with a file of testdata, or rewrites it.
func WantGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name+".golden")
	if *Update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// WantError checks that an error contains a text.
func WantError(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %v, and should say %q", err, says)
	}
}
