// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockTimeout is how long the lock is waited for: libxdp holds it for some milliseconds.
const (
	lockTimeout = 10 * time.Second
	pause       = 5 * time.Millisecond
)

// lock takes the lock of all dispatchers, an advisory one on their directory. The function that it returns releases the
// lock. Error: ErrLocked.
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
