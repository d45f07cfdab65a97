// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// store is a directory with a file for each fragment.
type store struct {
	dir string
	// dirLock is the directory, locked; nil until this process has something to write there.
	dirLock *os.File
	// journals are the committed lengths of the journals, by fragment, in bytes.
	journals map[string]int64
}

// DefaultDir is below a directory that outlives a reboot.
const DefaultDir = "/var/lib/jeoul/sources"

// DirectoryOf returns where the fragments beside a configuration file are kept, of the directory
// for all files: by its absolute path, as systemd-escape(1) writes paths. That is the same after a
// reboot, and when a reload has changed the interfaces.
func DirectoryOf(all, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the directory of the configuration set by the API: %w", err)
	}
	return filepath.Join(all, unit.UnitNamePathEscape(path)), nil
}

const (
	stored  = ".yaml"
	pending = ".new"
)

// heading is the first line of a file.
var heading = regexp.MustCompile(`^# Source \S+, generation (\d+), (\S+) by (".*")\.\n`)

// content is the content of a fragment's file.
func (f Fragment) content() []byte {
	return fmt.Appendf(nil,
		"# Source %s, generation %d, %s by %q.\n# jeoul writes this file: change it through the API, as by `jeoul apply`.\n%s", f.Name, f.Generation, f.At.Format(time.RFC3339), f.By, f.Text)
}

// load reads the fragments, by name; none where there is no directory. A half-written file of a process that died is
// removed: it was never acknowledged.
func (s *store) load() ([]Fragment, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration set by the API: %w", err)
	}
	var fragments []Fragment
	for _, entry := range entries { // in the order of their names
		name, ok := strings.CutSuffix(entry.Name(), stored)
		path := filepath.Join(s.dir, entry.Name())
		switch {
		case strings.HasSuffix(entry.Name(), pending):
			s.removeLeft(path)
		case ok && config.CheckFragmentName(name) == nil:
			file, err := readFile(path)
			if err != nil {
				return nil, err
			}
			fragment, err := s.replay(parse(name, file.Data))
			if err != nil {
				return nil, err
			}
			fragments = append(fragments, fragment)
		}
	}
	return fragments, nil
}

// parse takes the heading off a file's text. A file that a person has written has none.
func parse(name string, data []byte) Fragment {
	f := Fragment{Name: name, Generation: 1}
	if match := heading.FindSubmatch(data); match != nil {
		f.Generation, _ = strconv.ParseUint(string(match[1]), 10, 64)
		f.At, _ = time.Parse(time.RFC3339, string(match[2]))
		f.By, _ = strconv.Unquote(string(match[3]))
	}
	for bytes.HasPrefix(data, []byte("#")) {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	if len(data) > 0 {
		f.Text = data
	}
	return f
}

// hint says where fragments are stored, for a start that they have spoilt.
func (s *store) hint(fragments []Fragment) string {
	if len(fragments) == 0 {
		return ""
	}
	return fmt.Sprintf("\nsources beside the file are kept in %s, each as NAME%s: change the file, or one of these",
		s.dir, stored)
}

// written is a file that has not yet got its name.
type written struct {
	store                 *store
	name, temporary, path string
}

// write writes a fragment's file aside; it is on the disk when write returns.
func (s *store) write(f Fragment) (w written, err error) {
	if err := s.lock(); err != nil {
		return w, err
	}
	w.store, w.name, w.path = s, f.Name, filepath.Join(s.dir, f.Name+stored)
	w.temporary = w.path + pending
	file, err := os.OpenFile(w.temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return w, err
	}
	_, err = file.Write(f.content())
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		w.discard()
	}
	return w, err
}

// lock makes the directory, and locks it until this process ends: two balancers with the same file in different network
// namespaces would overwrite each other's sources.
func (s *store) lock() error {
	if err := makeDir(s.dir, 0o700); err != nil || s.dirLock != nil {
		return err
	}
	claim, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(claim.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		claim.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf(
				"another balancer, started with the same file, keeps its sources in %s: start one of them with --store-dir", s.dir)
		}
		return fmt.Errorf("lock %s: %w", s.dir, err)
	}
	s.dirLock = claim
	return nil
}

// removeLeft removes a file that a dead process was writing, but not a running process's: a second start reads these
// files before it finds out that there is another balancer.
func (s *store) removeLeft(path string) {
	held := s.dirLock != nil
	if s.lock() != nil {
		return
	}
	_ = os.Remove(path)
	if !held {
		s.release()
	}
}

// makeDir makes a directory, and those above it that are missing, so that they last. Others may
// pass through those above: /var/lib/jeoul has more than this.
func makeDir(dir string, mode fs.FileMode) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDir(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// syncDir writes the names in a directory to the disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// commit gives the file its name, and the fragment an empty journal: its records are of an earlier generation, and are
// ignored if the file cannot be removed.
func (w written) commit() error {
	if err := os.Rename(w.temporary, w.path); err != nil {
		w.discard()
		return err
	}
	_ = os.Remove(strings.TrimSuffix(w.path, stored) + journaled)
	w.store.noteJournal(w.name, 0)
	return syncDir(filepath.Dir(w.path))
}

func (w written) discard() { _ = os.Remove(w.temporary) }

// restore writes a fragment's previous file again after a failed change, if possible.
func (s *store) restore(f Fragment) {
	if f.Generation == 0 {
		_ = os.Remove(filepath.Join(s.dir, f.Name+stored))
		delete(s.journals, f.Name)
		return
	}
	_ = s.put(f)
}

// put stores a fragment.
func (s *store) put(f Fragment) error {
	w, err := s.write(f)
	if err != nil {
		return err
	}
	return w.commit()
}

// release lets another process write there.
func (s *store) release() {
	if s.dirLock != nil {
		s.dirLock.Close()
		s.dirLock = nil
	}
}
