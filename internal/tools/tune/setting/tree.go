// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"os"
	"path/filepath"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// Tree is the file system of facts and settings. Root is empty for the machine's own.
type Tree struct{ Root string }

// Path returns the path of a file of the tree.
func (t Tree) Path(parts ...string) string {
	return filepath.Join(append([]string{"/", t.Root}, parts...)...)
}

// Read returns a file's text in one line, or "" if the file does not exist.
func (t Tree) Read(parts ...string) string {
	data, err := os.ReadFile(t.Path(parts...))
	if err != nil {
		return ""
	}
	return sysctl.OneLine(string(data))
}

// Exists reports whether a file of the tree exists.
func (t Tree) Exists(parts ...string) bool {
	_, err := os.Stat(t.Path(parts...))
	return err == nil
}

func (t Tree) sysctls() sysctl.Tree { return sysctl.Tree{Root: t.Root} }
