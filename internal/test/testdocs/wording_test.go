// SPDX-License-Identifier: Apache-2.0

package testdocs

import (
	"regexp"
	"strings"
	"testing"
)

// secretFile matches a key of the configuration that names a file with a secret.
var secretFile = regexp.MustCompile("\\bkey_file: /|\\btokens: /|`password_file`")

// TestSecretFiles: a guide to a file with a secret tells how the package's service, which is not root, can read it.
func TestSecretFiles(t *testing.T) {
	guides := 0
	for _, page := range Pages(t) {
		if !strings.HasPrefix(page.Path, "docs/guides/") || !secretFile.MatchString(page.Text) {
			continue
		}
		guides++
		if !strings.Contains(page.Text, "group `jeoul`") {
			t.Errorf("%s: the file of a secret has no word about the group `jeoul`", page.Path)
		}
	}
	if guides < 3 {
		t.Errorf("only %d guides with secret files were found", guides)
	}
}
