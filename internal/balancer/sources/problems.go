// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// where takes the lines out of the problems of a source whose text was composed here: the caller has another text, and
// finds the place by its field.
func where(err error, composed bool, name string) error {
	var problems yamlfile.Problems
	if !composed || !errors.As(err, &problems) {
		return err
	}
	problems = slices.Clone(problems)
	for i := range problems {
		if problems[i].File == name {
			problems[i].Line = 0
		}
	}
	return problems
}

// remedyOf returns the remedy for an error of the file system; empty where the error says it itself.
func remedyOf(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return ": make room there, and ask again"
	case errors.Is(err, unix.EIO):
		return ": find the fault of that file system (dmesg), or start the balancer with another --store-dir"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS), errors.Is(err, unix.ENAMETOOLONG):
		return ": start the balancer with a --store-dir that it may write to"
	}
	return ""
}
