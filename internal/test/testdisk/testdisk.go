// SPDX-License-Identifier: Apache-2.0

// Package testdisk is a file system for tests that fails like a full, a read-only or a broken one.
package testdisk

import (
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/durable"
)

// Op is an operation on a file.
type Op string

// The operations that fail.
const (
	Create   Op = "create"
	Open     Op = "open"
	Write    Op = "write"
	Truncate Op = "truncate"
	Allocate Op = "allocate"
	Rename   Op = "rename"
	Remove   Op = "remove"
	MkdirAll Op = "mkdir"
	Close    Op = "close"
	// Only an Injector makes these fail.
	Chmod Op = "chmod"
	Sync  Op = "sync"
	Bind  Op = "bind"
)

// Fault is a fault of a file system.
type Fault struct {
	Name string
	Err  error
	Ops  []Op
}

// Faults are the faults that a file system of a machine can have.
var Faults = []Fault{
	{"no room", unix.ENOSPC, []Op{Write, Allocate, MkdirAll}},
	{"no inodes", unix.ENOSPC, []Op{Create, MkdirAll}},
	{"quota", unix.EDQUOT, []Op{Create, Write, Allocate}},
	{"read-only", unix.EROFS, []Op{Create, Open, Write, Truncate, Allocate, Rename, Remove, MkdirAll}},
	{"broken", unix.EIO, []Op{Create, Open, Write, Truncate, Allocate, Rename, Remove, MkdirAll, Close}},
	{"no rights", unix.EACCES, []Op{Create, Open, Rename, Remove, MkdirAll}},
}

// FileSystem is the machine's file system with a fault.
type FileSystem struct {
	mu    sync.Mutex
	fault *Fault
	// after is the number of the fault's operations that still succeed.
	after  int
	failed int
}

// Fail makes the operations of the fault fail from now on, once after of them have succeeded; nil: no fault.
func (f *FileSystem) Fail(fault *Fault, after int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.after, f.failed = fault, after, 0
}

// Failed returns the number of operations that have failed since Fail.
func (f *FileSystem) Failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// fails returns the error of an operation.
func (f *FileSystem) fails(op Op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault == nil || !slices.Contains(f.fault.Ops, op) {
		return nil
	}
	if f.after > 0 {
		f.after--
		return nil
	}
	f.failed++
	return &fs.PathError{Op: string(op), Path: path, Err: f.fault.Err}
}

// OpenFile is os.OpenFile.
func (f *FileSystem) OpenFile(path string, flag int, mode fs.FileMode) (durable.File, error) {
	op := Open
	if flag&os.O_CREATE != 0 {
		if _, err := os.Lstat(path); err != nil {
			op = Create
		}
	}
	// A file can be opened for reading on a file system that cannot be written to.
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		if err := f.fails(op, path); err != nil {
			return nil, err
		}
	}
	opened, err := durable.OS.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return &file{opened, f, path}, nil
}

// Stat is os.Lstat.
func (f *FileSystem) Stat(path string) (fs.FileInfo, error) { return durable.OS.Stat(path) }

// Rename is os.Rename.
func (f *FileSystem) Rename(from, to string) error {
	if err := f.fails(Rename, from); err != nil {
		return err
	}
	return durable.OS.Rename(from, to)
}

// Remove is os.Remove.
func (f *FileSystem) Remove(path string) error {
	if _, err := os.Lstat(path); err == nil {
		if err := f.fails(Remove, path); err != nil {
			return err
		}
	}
	return durable.OS.Remove(path)
}

// MkdirAll is os.MkdirAll.
func (f *FileSystem) MkdirAll(path string, mode fs.FileMode) error {
	if _, err := os.Stat(path); err != nil {
		if err := f.fails(MkdirAll, path); err != nil {
			return err
		}
	}
	return durable.OS.MkdirAll(path, mode)
}

type file struct {
	durable.File
	of   *FileSystem
	path string
}

// Write writes half of the data before it fails, as a full file system does.
func (f *file) Write(data []byte) (int, error) {
	if err := f.of.fails(Write, f.path); err != nil {
		n, _ := f.File.Write(data[:len(data)/2])
		return n, err
	}
	return f.File.Write(data)
}

// Truncate fails like the rest.
func (f *file) Truncate(size int64) error {
	if err := f.of.fails(Truncate, f.path); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Allocate fails like the rest.
func (f *file) Allocate(size int64) error {
	if err := f.of.fails(Allocate, f.path); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

// Close closes the file, even if the fault makes Close fail.
func (f *file) Close() error {
	err := f.of.fails(Close, f.path)
	if closed := f.File.Close(); err == nil {
		err = closed
	}
	return err
}

// Spare is a durable.Fallback in memory, for tests.
type Spare struct {
	mu   sync.Mutex
	kept map[string][]byte
	// Err is the error of Store, or nil.
	Err error
}

// Store stores a content.
func (s *Spare) Store(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err != nil {
		return s.Err
	}
	if s.kept == nil {
		s.kept = map[string][]byte{}
	}
	s.kept[name] = slices.Clone(data)
	return nil
}

// Load returns a content.
func (s *Spare) Load(name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data, there := s.kept[name]; there {
		return slices.Clone(data), nil
	}
	return nil, fs.ErrNotExist
}

// Drop deletes a content.
func (s *Spare) Drop(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, name)
	return nil
}
