// SPDX-License-Identifier: Apache-2.0

package testdocs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// roomEntry matches an entry of the rooms: its indentation, its folders and its description.
var roomEntry = regexp.MustCompile(`(?m)^( {0,2})(\S+/(?:, \S+/)*) +(.*(?:\n {3}.*)*)`)

// TestRooms: docs/architecture.md names each folder of Go files: by an entry, in the description of a folder above it,
// or as one of "a folder each".
func TestRooms(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(Root(t), "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Rooms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rooms, above := map[string]string{}, ""
	for _, entry := range roomEntry.FindAllStringSubmatch(section, -1) {
		for folder := range strings.SplitSeq(entry[2], ", ") {
			if entry[1] == "" {
				above = folder
				folder = ""
			}
			// The folders of a set, as a/{b,c}/, are described together.
			folder, _, _ = strings.Cut(path.Join(above, folder), "/{")
			rooms[folder] += " " + strings.Join(strings.Fields(entry[2]+" "+entry[3]), " ")
		}
	}
	if len(rooms) < 150 {
		t.Fatalf("only %d rooms were found", len(rooms))
	}
	for folder := range goFolders(t) {
		if !isNamed(rooms, folder) {
			t.Errorf("docs/architecture.md does not name %s", folder)
		}
	}
}

// goFolders returns the folders of the products' Go files, from the root of the tree.
func goFolders(t *testing.T) map[string]bool {
	folders := map[string]bool{}
	for _, top := range []string{"cmd", "internal"} {
		err := fs.WalkDir(os.DirFS(Root(t)), top, func(file string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(file, ".go") && !strings.Contains(file, "testdata/") {
				folders[path.Dir(file)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return folders
}

// isNamed reports whether the rooms, described by folder, name a folder.
func isNamed(rooms map[string]string, folder string) bool {
	if rooms[folder] != "" {
		return true
	}
	name := regexp.MustCompile(`\b` + path.Base(folder) + `\b[},/]|a folder (for )?each`)
	for above := path.Dir(folder); above != "."; above = path.Dir(above) {
		if name.MatchString(rooms[above]) {
			return true
		}
	}
	return false
}
