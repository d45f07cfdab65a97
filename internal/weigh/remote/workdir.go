// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The directory of a worker on its machine. It is not in /tmp or /run: programs must be allowed to run there, and logs
// to grow.
const (
	dirBase   = "/var/tmp"
	dirPrefix = "jeoul-worker-"
	// lockName is the file that a worker locks while it runs.
	lockName = "lock"
	// copyTimeout bounds the age of a directory without a worker, while files are being copied to it; locking bounds it
	// after its worker has run.
	copyTimeout = time.Hour
	locking     = time.Minute
)

// lockDir marks dir as in use, and removes the directories of workers that are dead.
func lockDir(dir string) (*os.File, error) {
	file, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("locking the worker's directory: %w", err)
	}
	stale, _ := filepath.Glob(filepath.Join(dirBase, dirPrefix+"*")) // the pattern is valid
	for _, other := range stale {
		if other != dir {
			removeStale(other)
		}
	}
	return file, nil
}

// removeStale removes a directory whose worker is dead. A failure to do so does not prevent the worker from working.
func removeStale(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return
	}
	since, limit := info.ModTime(), copyTimeout
	if lived, err := os.Lstat(filepath.Join(dir, lockName)); err == nil {
		since, limit = lived.ModTime(), locking
	}
	if time.Since(since) < limit {
		return
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return // its worker is running
	}
	defer lock.Close()
	_ = os.RemoveAll(dir)
}

func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
