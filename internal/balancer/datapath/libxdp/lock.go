// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockTimeout bounds the wait for the lock, which libxdp holds for some milliseconds.
const (
	lockTimeout = 10 * time.Second
	pause       = 5 * time.Millisecond
)

// lock takes the lock of all dispatchers, an advisory lock on their directory. Closing the file releases it. Error:
// ErrLocked.
func lock() (*os.File, error) {
	if err := os.Mkdir(root(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("making the directory of libxdp's dispatchers: %w", err)
	}
	dir, err := os.OpenFile(root(), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of libxdp's dispatchers: %w", err)
	}
	for start := time.Now(); ; <-time.After(pause) {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Since(start) > lockTimeout {
			dir.Close()
			return nil, fmt.Errorf("%w: locking %s for %v: %v", ErrLocked, root(), lockTimeout, err)
		}
	}
}
