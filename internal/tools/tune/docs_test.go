// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testdocs"
)

// TestDocs: the profiles on documentation pages are valid, over the built-in one.
func TestDocs(t *testing.T) {
	shown := 0
	for _, page := range testdocs.Pages(t) {
		for _, block := range page.Blocks() {
			if block.Language != "yaml" || !strings.HasPrefix(block.Text, "items:\n") {
				continue
			}
			shown++
			file := filepath.Join(t.TempDir(), "profile.yaml")
			if err := os.WriteFile(file, []byte(block.Text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(file); err != nil {
				t.Errorf("%s:%d: %v", page.Path, block.Line, err)
			}
		}
	}
	if shown == 0 {
		t.Error("no profile was found")
	}
}
