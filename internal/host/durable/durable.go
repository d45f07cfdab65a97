// SPDX-License-Identifier: Apache-2.0

// Package durable writes files that only a restart needs. A failed write never prevents a change: the content is kept
// in a fallback, if there is one, the fault is recorded, and the write is retried until it succeeds.
package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotWritten is wrapped by the error of Save. The content is in force nevertheless, and Retry writes the file later.
var ErrNotWritten = errors.New("not written to its file yet")

// Fallback keeps small contents without a disk, until the machine is restarted.
type Fallback interface {
	// Store stores a content under a name, and atomically replaces the previous one.
	Store(name string, data []byte) error
	// Load returns the content; fs.ErrNotExist where there is none.
	Load(name string) ([]byte, error)
	// Drop deletes the content, if it exists.
	Drop(name string) error
}

// Fault is a file that could not be written.
type Fault struct {
	// The content's name, as a noun with an article, and the path of its file.
	Name, Path string
	// Since is the time of the first failed write, and Err the last error.
	Since time.Time
	Err   error
	// InFallback: the fallback has the content, so that only a restart of the machine loses it.
	InFallback bool
}

// String names the fault, its consequence, and the remedy.
func (f Fault) String() string {
	until := "it ends with this process"
	if f.InFallback {
		until = "the kernel keeps it until the machine is started anew"
	}
	return fmt.Sprintf("%s cannot be written to %s (%s): decisions go on, and %s: make room there, or make it writable",
		f.Name, f.Path, oneLine(f.Err), until)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Options are the file system and the fallback of Files.
type Options struct {
	// FileSystem is OS if nil; Fallback may be nil.
	FileSystem FileSystem
	Fallback   Fallback
}

// Files are the files of a daemon. Methods may be called from several goroutines, and on nil.
type Files struct {
	opt Options

	mu       sync.Mutex
	pending  map[string]*pendingFile // by path
	failures uint64
	changes  chan struct{}
}

// pendingFile is a fault, and its retry; nil where the owner of the file retries.
type pendingFile struct {
	Fault
	retry func() error
}

// New returns Files without faults.
func New(opt Options) *Files {
	return &Files{opt: opt, pending: map[string]*pendingFile{}, changes: make(chan struct{}, 1)}
}

// FileSystem returns the file system that files are written to.
func (f *Files) FileSystem() FileSystem {
	if f == nil || f.opt.FileSystem == nil {
		return OS
	}
	return f.opt.FileSystem
}

// Changes is signalled after Faults may have changed.
func (f *Files) Changes() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.changes
}

// Faults returns the files that could not be written, in the order of their paths.
func (f *Files) Faults() []Fault {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	faults := make([]Fault, 0, len(f.pending))
	for _, path := range slices.Sorted(maps.Keys(f.pending)) {
		faults = append(faults, f.pending[path].Fault)
	}
	return faults
}

// Failures returns how many attempts to write a file have failed.
func (f *Files) Failures() uint64 {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures
}

// RecordResult records the result of an attempt to write a file: a nil error ends its fault. The owner retries.
func (f *Files) RecordResult(what, path string, err error, kept bool) {
	f.setResult(what, path, err, kept, nil)
}

// RecordRetryable is RecordResult for a file that is written in another way than a Content: Retry calls again.
func (f *Files) RecordRetryable(what, path string, err error, retries func() error) {
	f.setResult(what, path, err, false, retries)
}

func (f *Files) setResult(what, path string, err error, kept bool, retries func() error) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failing := f.pending[path]
	if err == nil {
		delete(f.pending, path)
		if failing {
			f.notifyChanged()
		}
		return
	}
	f.failures++
	now := &pendingFile{Fault{what, path, time.Now(), err, kept}, retries}
	if failing {
		now.Since = before.Since
	}
	f.pending[path] = now
	f.notifyChanged()
}

func (f *Files) notifyChanged() {
	select {
	case f.changes <- struct{}{}:
	default:
	}
}

// Retry tries again to write the files that could not be written.
func (f *Files) Retry() {
	if f == nil {
		return
	}
	f.mu.Lock()
	retries := make([]func() error, 0, len(f.pending))
	for _, path := range slices.Sorted(maps.Keys(f.pending)) {
		if try := f.pending[path].retry; try != nil {
			retries = append(retries, try)
		}
	}
	f.mu.Unlock()
	for _, try := range retries {
		_ = try() // a failure is recorded again
	}
}

// Content is a file whose content is replaced as a whole. Its methods may be called from several goroutines.
type Content struct {
	files *Files
	// The content's name for a Fault, its path, and the name of its copy in the fallback.
	noun, path, name string
	mode             fs.FileMode
	mu               sync.Mutex
	// unwritten is the content that is not yet in the file; nil: the file must be removed.
	unwritten []byte
}

// Content returns the file at a path, which has a name in the fallback; with an empty name, as for a file that another
// program reads, or for nil Files, it has no fallback.
func (f *Files) Content(what, path, name string, mode fs.FileMode) *Content {
	return &Content{files: f, noun: what, path: path, name: name, mode: mode}
}

// Path returns the path of the file.
func (c *Content) Path() string { return c.path }

// Save replaces the content; nil removes the file. An error wraps ErrNotWritten.
func (c *Content) Save(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwritten = data
	return c.write()
}

// write writes the file, or its copy in the fallback.
func (c *Content) write() error {
	fsys := c.files.FileSystem()
	var err error
	if c.unwritten == nil {
		err = remove(fsys, c.path)
	} else {
		err = InDirectory(fsys, c.path, func() error { return Replace(fsys, c.path, c.unwritten, c.mode, false) })
	}
	fallback := c.fallback()
	if err == nil {
		c.files.setResult(c.noun, c.path, nil, false, nil)
		if fallback != nil {
			_ = fallback.Drop(c.name) // a copy that stays is ignored, since the file has changed
		}
		return nil
	}
	kept := fallback != nil && c.writeCopy(fallback) == nil
	c.files.setResult(c.noun, c.path, err, kept, c.retryWrite)
	return &notWritten{Fault{Name: c.noun, Path: c.path, Err: err, InFallback: kept}}
}

// notWritten is the error of Save.
type notWritten struct{ Fault }

func (n *notWritten) Error() string   { return n.Fault.String() }
func (n *notWritten) Unwrap() []error { return []error{ErrNotWritten, n.Err} }

// retryWrite writes the content again.
func (c *Content) retryWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write()
}

func (c *Content) fallback() Fallback {
	if c.files == nil || c.name == "" {
		return nil
	}
	return c.files.opt.Fallback
}

// copyHeader is the first line of a copy. Beside identifies the file when the copy was made: if the file is another one
// now, it is newer.
type copyHeader struct {
	Beside  stamp `json:"beside"`
	Removed bool  `json:"removed,omitempty"`
}

// stamp identifies a file and its content; the zero value means that there is no file.
type stamp struct {
	Inode    uint64 `json:"inode,omitempty"`
	Modified int64  `json:"modified,omitempty"`
	Size     int64  `json:"size,omitempty"`
}

func (c *Content) stamp() (stamp, error) {
	info, err := c.files.FileSystem().Stat(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil
	}
	if err != nil {
		return stamp{}, err
	}
	s := stamp{Modified: info.ModTime().UnixNano(), Size: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode = stat.Ino
	}
	return s, nil
}

// writeCopy stores the content in the fallback.
func (c *Content) writeCopy(fallback Fallback) error {
	beside, err := c.stamp()
	if err != nil {
		return err
	}
	head, err := json.Marshal(copyHeader{beside, c.unwritten == nil})
	if err != nil {
		return err
	}
	return fallback.Store(c.name, slices.Concat(head, []byte{'\n'}, c.unwritten))
}

// Load returns the newest content: that of the file by read, or the copy where the file could not be written since.
// Errors are those of read, as fs.ErrNotExist where there is none.
func (c *Content) Load(read func(path string) ([]byte, error)) ([]byte, error) {
	if data, newer, removed := c.readCopy(); newer {
		if removed {
			return nil, fmt.Errorf("%s: %w", c.path, fs.ErrNotExist)
		}
		return data, nil
	}
	return read(c.path)
}

// readCopy returns the copy, and whether it is newer than the file.
func (c *Content) readCopy() (data []byte, newer, removed bool) {
	fallback := c.fallback()
	if fallback == nil {
		return nil, false, false
	}
	data, err := fallback.Load(c.name)
	if err != nil {
		return nil, false, false
	}
	var head copyHeader
	first, data, ok := bytes.Cut(data, []byte{'\n'})
	if !ok || json.Unmarshal(first, &head) != nil {
		return nil, false, false
	}
	beside, err := c.stamp()
	if err == nil && beside != head.Beside {
		return nil, false, false
	}
	return data, true, head.Removed
}

// Forget removes the file, its copies, and a partly written one; it returns an error if one of them cannot be removed.
func (c *Content) Forget() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fsys := c.files.FileSystem()
	err := errors.Join(remove(fsys, c.path), remove(fsys, c.path+NewSuffix))
	if fallback := c.fallback(); fallback != nil {
		err = errors.Join(err, fallback.Drop(c.name))
	}
	c.unwritten = nil
	c.files.setResult(c.noun, c.path, nil, false, nil)
	return err
}
