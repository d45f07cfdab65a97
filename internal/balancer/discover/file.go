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
	// fileDebounce lets several writes of a program in one go be read once.
	fileDebounce = 50 * time.Millisecond
	// filePollInterval is how often a file is looked at without an event of the kernel: a network file system has none
	// for changes by other hosts, and a folder may have to be made first.
	filePollInterval = 10 * time.Second
	// fileRetryInterval is when one that could not be read is looked at again.
	fileRetryInterval = time.Second
	// writingMinBackoff is when a file that is being written is looked at again at first, and
	// writingTimeout after how long that is a problem.
	writingMinBackoff = 20 * time.Millisecond
	writingMaxBackoff = time.Second
	writingTimeout    = 10 * time.Second
	// maxFile is more than the most backends take.
	maxFile = 8 << 20
)

// errWriting is the error of a file that a program has open for writing.
var errWriting = errors.New("is open for writing")

// file follows a list of backends that another program writes.
type file struct {
	path        string
	maxBackends int
}

// Follow reads the file whenever it may be another. The folder is watched, and not the file: programs
// that write a list whole put another file in its place.
func (f file) Follow(ctx context.Context, notify func(Answer)) {
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

// folderWatch are the watched folders in which a file stands. nil has none: the kernel allows no more of them, and the
// file is looked at now and then.
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

// await returns after an event and those that follow it at once, or after a while; false: the context has ended.
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

// follow watches the folders in which a path and the targets of its symbolic links stand.
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
		_ = w.Add(folder) // one that is not there is tried again; one that was replaced has no watch
	}
}

// read returns the file's content, whole. While a program has it open for writing, that is
// errWriting.
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
	// The kernel grants a lease only while no one has the file open for writing, and a program that opens it then waits
	// until it is read. Where the file system has no leases, the file's size and times must be the same before and
	// after.
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

// fileState is the properties by which an open file is known to have changed.
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

// shortened returns the first of several problems.
func shortened(err error) error {
	var problems yamlfile.Problems
	if errors.As(err, &problems) && len(problems) > 1 {
		return fmt.Errorf("%w, and %d more", problems[0], len(problems)-1)
	}
	return err
}
