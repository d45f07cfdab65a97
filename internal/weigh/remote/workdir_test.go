// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestOnlyDirectoriesOfDeadWorkersAreRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		dirAge time.Duration
		// lockAge is the age of the lock; 0 if no worker has made one.
		lockAge time.Duration
		lives   bool
		goes    bool
	}{
		"being copied to":        {dirAge: 30 * time.Minute},
		"copied to and left":     {dirAge: 2 * time.Hour, goes: true},
		"its worker begins":      {dirAge: time.Minute, lockAge: time.Second},
		"its worker is dead":     {dirAge: 5 * time.Minute, lockAge: 5 * time.Minute, goes: true},
		"its worker is at work":  {dirAge: 5 * time.Hour, lockAge: 5 * time.Hour, lives: true},
		"an old one that begins": {dirAge: 2 * time.Hour, lockAge: time.Second},
	} {
		dir := filepath.Join(t.TempDir(), "worker")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, lockName)
		if tc.lockAge > 0 {
			lock, err := lockFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if !tc.lives {
				lock.Close()
			}
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(-tc.lockAge)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-tc.dirAge)); err != nil {
			t.Fatal(err)
		}
		removeStale(dir)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) != tc.goes {
			t.Errorf("%s: %v", name, err)
		}
	}
}
