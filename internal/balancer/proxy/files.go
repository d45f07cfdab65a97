// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/sha256"
	"os"
	"syscall"
	"time"
)

// Files detects changed files. It is not safe for concurrent use.
type Files struct {
	known map[string]fileState
}

// fileState is the state of a file when it was last read.
type fileState struct {
	changed time.Time
	inode   uint64
	size    int64
	sum     [sha256.Size]byte
}

// Changed returns the paths whose contents have changed since the last call that had the path; a path that is new to it
// has not changed. A file that cannot be read has not changed either: it is about to be replaced, or its user reports
// the fault. A file is read only if its time, size or inode has changed.
func (f *Files) Changed(paths []string) (changed []string) {
	known := make(map[string]fileState, len(paths))
	for _, path := range paths {
		was, had := f.known[path]
		now, ok := readFileState(path, was)
		if !ok {
			now = was
		}
		if ok && had && now.sum != was.sum {
			changed = append(changed, path)
		}
		if ok || had {
			known[path] = now
		}
	}
	f.known = known
	return changed
}

// readFileState returns the present state of a file; was is its last known one.
func readFileState(path string, was fileState) (fileState, bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return fileState{}, false
	}
	now := fileState{changed: info.ModTime(), size: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = stat.Ino
	}
	if now.changed.Equal(was.changed) && now.inode == was.inode && now.size == was.size {
		return was, true
	}
	contents, err := readBounded(path)
	if err != nil {
		return fileState{}, false
	}
	now.sum = sha256.Sum256(contents)
	return now, true
}
