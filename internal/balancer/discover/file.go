// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

const (
	// fileDebounce is the wait after an event, so that a burst of writes causes one read.
	fileDebounce = 50 * time.Millisecond
	// filePollInterval is the interval of reads without an event of the kernel: a network file system has none for
	// other hosts' changes, and the folder may not exist yet.
	filePollInterval = 10 * time.Second
	// fileRetryInterval is the time until a file that could not be read is read again.
	fileRetryInterval = time.Second
	// writingMinBackoff is the first pause before a file that is open for writing is read again, and writingTimeout the
	// time after which that is a problem.
	writingMinBackoff = 20 * time.Millisecond
	writingMaxBackoff = time.Second
	writingTimeout    = 10 * time.Second
	// maxFile bounds the file, in bytes: more than the largest number of backends takes.
	maxFile = 8 << 20
)

// errWriting is the error of a file that a program has open for writing.
var errWriting = errors.New("is open for writing")

// file follows a list of backends that another program writes.
type file struct {
	path        string
	maxBackends int
}

// Watch reads the file whenever it may have changed. It watches the folder instead of the file, because programs may
// replace the file.
func (f file) Watch(ctx context.Context, notify func(Answer)) {
	watch := watchFolders()
	defer watch.close()
	r := fileReader{file: f, notify: notify}
	for {
		watch.follow(f.path)
		if !watch.await(ctx, r.reread()) {
			return
		}
	}
}

// fileReader reads a file, and has its state as it was read last.
type fileReader struct {
	file
	notify   func(Answer)
	text     []byte
	notified bool
	// writing is since when the file is open for writing; zero: it is not.
	writing time.Time
	wait    time.Duration
}

// reread reads the file, and returns the time after which it is read again if there is no event.
func (r *fileReader) reread() time.Duration {
	data, err := r.read()
	if errors.Is(err, errWriting) {
		return r.rereadWriting(err)
	}
	r.writing, r.wait = time.Time{}, writingMinBackoff
	switch {
	case err != nil:
		r.notify(Answer{Err: err})
		r.notified = false
		return fileRetryInterval
	case !r.notified || !bytes.Equal(data, r.text):
		r.notify(r.parse(data))
		r.notified, r.text = true, data
	}
	return filePollInterval
}

// rereadWriting is reread for a file that is being written.
func (r *fileReader) rereadWriting(err error) time.Duration {
	if r.writing.IsZero() {
		r.writing, r.wait = time.Now(), writingMinBackoff
	}
	if time.Since(r.writing) > writingTimeout {
		r.notify(Answer{Err: fmt.Errorf("%s %w since %s, and is read when that ends", r.path, err,
			r.writing.Format(time.DateTime))})
		r.notified = false
	}
	r.wait = min(2*r.wait, writingMaxBackoff)
	return r.wait
}

// folderWatch watches the folders of a file. nil: the kernel allows no further watch, and the file is polled.
type folderWatch struct {
	*fsnotify.Watcher
	watched []string
}

func watchFolders() *folderWatch {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	return &folderWatch{Watcher: watcher}
}

func (w *folderWatch) close() {
	if w != nil {
		w.Close()
	}
}

// await returns after a burst of events, or after the wait; false: the context has ended.
func (w *folderWatch) await(ctx context.Context, wait time.Duration) bool {
	var events chan fsnotify.Event
	var lost chan error
	if w != nil {
		events, lost = w.Events, w.Errors
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for settling := false; ; settling = true {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-lost: // lost events: the file is read now
		case <-events:
		}
		if !settling && wait > fileDebounce {
			timer.Reset(fileDebounce)
		}
	}
}

// follow watches the folders of a path and of the targets of its symbolic links.
func (w *folderWatch) follow(path string) {
	if w == nil {
		return
	}
	wanted := []string{filepath.Dir(path)}
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(target) != wanted[0] {
		wanted = append(wanted, filepath.Dir(target))
	}
	for _, folder := range w.watched {
		if !slices.Contains(wanted, folder) {
			_ = w.Remove(folder) // it may be gone
		}
	}
	w.watched = wanted
	for _, folder := range wanted {
		_ = w.Add(folder) // a missing folder is tried again; a replaced one has no watch
	}
}

// read returns the file's complete content, or errWriting while a program has it open for writing.
func (f file) read() ([]byte, error) {
	opened, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO has no writer to wait for
	if err != nil {
		return nil, fmt.Errorf("read the list of backends: %w", err)
	}
	defer opened.Close()
	before, err := readFileState(opened)
	if err != nil {
		return nil, fmt.Errorf("read the list of backends %s: %w", f.path, err)
	}
	// The kernel grants a lease only if the file is not open for writing, and has writers wait until it is released. On
	// a file system without leases, the file's size and times must be equal before and after.
	if _, err := unix.FcntlInt(opened.Fd(), unix.F_SETLEASE, unix.F_RDLCK); errors.Is(err, unix.EAGAIN) {
		return nil, errWriting
	}
	data, err := io.ReadAll(io.LimitReader(opened, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the list of backends: %w", err)
	}
	if after, err := readFileState(opened); err == nil && after != before {
		return nil, errWriting
	}
	return data, nil
}

// fileState has the properties of an open file that show a change.
type fileState struct {
	size int64
	mod  unix.Timespec
}

func readFileState(opened *os.File) (fileState, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(opened.Fd()), &st); err != nil {
		return fileState{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fileState{}, errors.New("it is no regular file")
	}
	return fileState{st.Size, st.Mtim}, nil
}

// parse parses a list.
func (f file) parse(data []byte) Answer {
	backends, err := config.ReadBackends(f.path, data, f.maxBackends)
	if err != nil {
		return Answer{Err: shortened(err)}
	}
	found := make([]Found, len(backends))
	for i, b := range backends {
		found[i] = Found{Backend: b}
	}
	return Answer{Found: found}
}

// shortened returns an error with the first of several problems.
func shortened(err error) error {
	var problems yamlfile.Problems
	if errors.As(err, &problems) && len(problems) > 1 {
		return fmt.Errorf("%w, and %d more", problems[0], len(problems)-1)
	}
	return err
}
