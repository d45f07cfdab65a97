// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// locksDir holds one ID.lock per lab of this machine.
const locksDir = "/run/jeoul/labs"

const lockSuffix = ".lock"

// lock is the proof that a lab's owner lives: an flock, which the kernel gives
// up when the owner dies, however it dies.
type lock struct {
	id   string
	file *os.File
}

// record is what a lock file says, for the process that cleans up after its owner.
type record struct {
	PID int `json:"pid"`
	// Dir is the work directory to be removed with the lab; empty if it is the
	// caller's own.
	Dir string `json:"dir,omitempty"`
}

func lockPath(id string) string { return filepath.Join(locksDir, id+lockSuffix) }

// newLock takes an ID that no lab of this machine has.
func newLock() (*lock, error) {
	if err := os.MkdirAll(locksDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of lab locks: %w", err)
	}
	// A random ID is taken with a small chance; more tries than this mean that
	// something else is wrong.
	for range 100 {
		var b [2]byte
		rand.Read(b[:])
		id := hex.EncodeToString(b[:])
		f, err := os.OpenFile(lockPath(id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make a lab's lock file: %w", err)
		}
		l := &lock{id: id, file: f}
		if l.take() {
			return l, nil
		}
		// A cleaner came between the file's making and its locking, took it for
		// a dead lab's, and removes it.
		f.Close()
	}
	return nil, fmt.Errorf("find a free lab ID in %s: none in 100 tries; remove stale files there", locksDir)
}

// openLock takes the lock of an existing file; nil without an error means that
// its owner lives (or another cleaner is at it).
func openLock(id string) (*lock, error) {
	f, err := os.OpenFile(lockPath(id), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the lock of lab %s: %w", id, err)
	}
	l := &lock{id: id, file: f}
	if !l.take() {
		f.Close()
		return nil, nil
	}
	return l, nil
}

// take locks the file, and checks that it is still the one at its path: a lock
// on a file that was unlinked meanwhile protects nothing.
func (l *lock) take() bool {
	if unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	held, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(lockPath(l.id))
	return err == nil && os.SameFile(held, there)
}

func (l *lock) write(r record) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = l.file.WriteAt(append(b, '\n'), 0)
	}
	if err != nil {
		return fmt.Errorf("write the lock file of lab %s: %w", l.id, err)
	}
	return nil
}

// read returns the zero record if the owner died before it wrote one: then it
// had not made a directory yet.
func (l *lock) read() record {
	var r record
	b, err := os.ReadFile(lockPath(l.id))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return record{}
	}
	return r
}

// remove unlinks the file while the lock is held, then gives the lock up.
func (l *lock) remove() error {
	err := os.Remove(lockPath(l.id))
	l.file.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the lock of lab %s: %w", l.id, err)
	}
	return nil
}

// release gives the lock up but leaves the file, for a later cleaner.
func (l *lock) release() { l.file.Close() }
