// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Move moves the fragments of a directory of an earlier version, and removes that directory. Of a fragment in both, the
// one with the higher generation is kept. It returns the names of the moved fragments. After an error, each is in at
// least one of the directories.
func Move(from, to string) (moved []string, err error) {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	previous, target := store{dir: from}, store{dir: to}
	defer target.release()
	left, err := previous.load()
	if err != nil {
		return nil, err
	}
	there, err := target.load()
	if err != nil {
		return nil, err
	}
	for _, f := range left {
		newer := func(other Fragment) bool { return other.Name == f.Name && other.Generation >= f.Generation }
		if slices.ContainsFunc(there, newer) {
			continue
		}
		if err := target.put(f); err != nil {
			return moved, fmt.Errorf("move the configuration set by the API from %s to %s: %w%s", from, to, err, remedyOf(err))
		}
		moved = append(moved, f.Name)
	}
	for _, f := range left {
		_ = os.Remove(filepath.Join(from, f.Name+journaled))
		err = errors.Join(err, os.Remove(filepath.Join(from, f.Name+stored)))
	}
	return moved, errors.Join(err, os.Remove(from))
}
