// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FileSystem has the operations for writing files. OS is the machine's; tests use one that fails.
type FileSystem interface {
	OpenFile(path string, flag int, mode fs.FileMode) (File, error)
	Stat(path string) (fs.FileInfo, error)
	Rename(from, to string) error
	Remove(path string) error
	MkdirAll(path string, mode fs.FileMode) error
}

// File is an open file.
type File interface {
	Write(data []byte) (int, error)
	Truncate(size int64) error
	// Allocate reserves room for the first size bytes, without changing the length of the file.
	Allocate(size int64) error
	Chmod(mode fs.FileMode) error
	Sync() error
	Close() error
}

// OS is the file system of the machine.
var OS FileSystem = machine{}

type machine struct{}

type machineFile struct{ *os.File }

func (machine) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return machineFile{file}, nil
}

func (machine) Stat(path string) (fs.FileInfo, error)        { return os.Lstat(path) }
func (machine) Rename(from, to string) error                 { return os.Rename(from, to) }
func (machine) Remove(path string) error                     { return os.Remove(path) }
func (machine) MkdirAll(path string, mode fs.FileMode) error { return os.MkdirAll(path, mode) }

func (f machineFile) Allocate(size int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// NewSuffix is the suffix of a file that is about to replace another.
const NewSuffix = ".new"

// Replace replaces a file atomically, and follows no link that another user may have put into a directory that others
// can write to. With sync the content is on disk on return; the directory entry is after SyncDir.
func Replace(fsys FileSystem, path string, data []byte, mode fs.FileMode, sync bool) error {
	temporary := path + NewSuffix
	file, err := fsys.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if sync {
		err = errors.Join(err, file.Sync())
	}
	if err = errors.Join(err, file.Chmod(mode), file.Close()); err == nil {
		err = fsys.Rename(temporary, path)
	}
	if err != nil {
		// A partly written file takes room, and is written over by the next attempt.
		return errors.Join(err, remove(fsys, temporary))
	}
	return nil
}

// remove removes a file if it is there.
func remove(fsys FileSystem, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// InDirectory calls do, which creates a file at a path. If the file's directory is missing, it creates that and calls
// do again.
func InDirectory(fsys FileSystem, path string, do func() error) error {
	err := do()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fsys.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return do()
}

// Unwritable reports whether an error means that a file system is full, read-only, broken or inaccessible to root, or
// that a directory is missing: faults that may end later, and are not the caller's.
func Unwritable(err error) bool {
	for _, errno := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO, unix.ESTALE,
		unix.ENOMEM, unix.ENFILE, unix.EMFILE, unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ELOOP} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0
}
