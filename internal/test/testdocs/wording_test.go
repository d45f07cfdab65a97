// SPDX-License-Identifier: Apache-2.0

package testdocs

import (
	"regexp"
	"strings"
	"testing"
)

// TestOtherTexts: pages refer to no text that readers do not have, and explain its name where they first use it.
func TestOtherTexts(t *testing.T) {
	for _, page := range Pages(t) {
		if page.Path == "CHANGELOG.md" || strings.HasPrefix(page.Path, "docs/results/") ||
			page.Path == "docs/reference/glossary.md" {
			continue
		}
		text := strings.ToLower(strings.Join(strings.Fields(strings.Join(page.prose(), " ")), " "))
		if strings.Contains(text, "first document") {
			t.Errorf("%s refers to a first document", page.Path)
		}
		first := strings.Index(text, "experiment 1")
		if first >= 0 && !strings.HasPrefix(text[first:], "experiment 1](") {
			t.Errorf("%s: the first mention of experiment 1 is no link to the glossary", page.Path)
		}
	}
}

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
