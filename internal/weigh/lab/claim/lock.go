// SPDX-License-Identifier: Apache-2.0

// Package claim holds the objects that a laboratory's owner claims, and that others clean up after the owner is dead:
// an ID with its lock, a cgroup, names of namespaces, a directory.
package claim

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

// dir holds one ID.lock per lab of this machine. Only root can write there: a lock says what root removes, and
// /run/jeoul is the service's, whose user is not root. Tests have a directory of their own.
var dir = "/run/jeoul-labs"

const suffix = ".lock"

// Lock proves that a lab's owner is running: an flock, which the kernel releases when the owner ends, however it ends.
type Lock struct {
	// ID is four hexadecimal digits, unique among the labs of this machine.
	ID   string
	file *os.File
}

// Record is the text of a lock file, for the process that cleans up after its owner.
type Record struct {
	PID int `json:"pid"`
	// Dir is the work directory to be removed with the lab; empty if it is the caller's own.
	Dir string `json:"dir,omitempty"`
}

// DirName is the name of a lab's work directory.
func DirName(id string) string { return "jeoul-lab-" + id }

// Path is the file of a lab's lock.
func Path(id string) string { return filepath.Join(dir, id+suffix) }

// New claims an ID that no lab of this machine has.
func New() (*Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of lab locks: %w", err)
	}
	// A random ID is taken with a small probability; more tries than this mean that something else is wrong.
	for range 100 {
		var b [2]byte
		rand.Read(b[:])
		id := hex.EncodeToString(b[:])
		f, err := os.OpenFile(Path(id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make a lab's lock file: %w", err)
		}
		l := &Lock{ID: id, file: f}
		if l.take() {
			return l, nil
		}
		// A cleaner came between the creation of the file and its locking, and removes it as a dead lab's.
		f.Close()
	}
	return nil, fmt.Errorf("find a free lab ID in %s: none in 100 tries; remove stale files there", dir)
}

// open takes the lock of an existing file; nil without an error means that its owner lives (or another cleaner holds
// it).
func open(id string) (*Lock, error) {
	f, err := os.OpenFile(Path(id), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the lock of lab %s: %w", id, err)
	}
	l := &Lock{ID: id, file: f}
	if !l.take() {
		f.Close()
		return nil, nil
	}
	return l, nil
}

// take locks the file, and checks that it is still the file at its path: a lock on a file that was unlinked in the
// meantime protects nothing.
func (l *Lock) take() bool {
	if unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	held, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(Path(l.ID))
	return err == nil && os.SameFile(held, there)
}

// Write writes the record into the file.
func (l *Lock) Write(r Record) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = l.file.WriteAt(append(b, '\n'), 0)
	}
	if err != nil {
		return fmt.Errorf("write the lock file of lab %s: %w", l.ID, err)
	}
	return nil
}

// Read returns the zero Record if the owner died before it wrote one: it had not made a directory by then.
func (l *Lock) Read() Record {
	var r Record
	b, err := os.ReadFile(Path(l.ID))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return Record{}
	}
	return r
}

// Remove unlinks the file while the lock is held, then releases the lock.
func (l *Lock) Remove() error {
	err := os.Remove(Path(l.ID))
	l.file.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the lock of lab %s: %w", l.ID, err)
	}
	return nil
}

// Release releases the lock but leaves the file, for a later cleaner.
func (l *Lock) Release() { l.file.Close() }
