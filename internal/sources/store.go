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

	"github.com/jeoul/jeoul/internal/config"
)

// store is a directory with a file for each fragment.
type store string

const (
	stored  = ".yaml"
	pending = ".new"
)

// heading is the first line of a file.
var heading = regexp.MustCompile(`^# Source \S+, generation (\d+), (\S+) by (".*")\.\n`)

// content is what stands in a fragment's file.
func (f Fragment) content() []byte {
	return fmt.Appendf(nil, "# Source %s, generation %d, %s by %q.\n# jeoul writes this file: change it through the API, as by `jeoul apply`.\n%s", f.Name, f.Generation, f.At.Format(time.RFC3339), f.By, f.Text)
}

// load reads the fragments, by name; none where there is no directory. What a process has left that
// died while it wrote is removed: none of it was ever in force for who asked.
func (s store) load() ([]Fragment, error) {
	entries, err := os.ReadDir(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what the API has configured: %w", err)
	}
	var fragments []Fragment
	for _, entry := range entries { // in the order of their names
		name, ok := strings.CutSuffix(entry.Name(), stored)
		path := filepath.Join(string(s), entry.Name())
		switch {
		case strings.HasSuffix(entry.Name(), pending):
			_ = os.Remove(path)
		case ok && config.CheckFragmentName(name) == nil:
			file, err := readFile(path)
			if err != nil {
				return nil, err
			}
			fragments = append(fragments, parse(name, file.Data))
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
func (s store) hint(fragments []Fragment) string {
	if len(fragments) == 0 {
		return ""
	}
	return fmt.Sprintf("\nsources beside the file are kept in %s, each as NAME%s: change the file, or one of these", string(s), stored)
}

// written is a file that has not yet got its name.
type written struct{ temporary, path string }

// write writes a fragment's file aside; it is on the disk when write returns.
func (s store) write(f Fragment) (w written, err error) {
	if err := os.MkdirAll(string(s), 0o700); err != nil {
		return w, err
	}
	w.path = filepath.Join(string(s), f.Name+stored)
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

// commit gives the file its name.
func (w written) commit() error {
	if err := os.Rename(w.temporary, w.path); err != nil {
		w.discard()
		return err
	}
	dir, err := os.Open(filepath.Dir(w.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (w written) discard() { _ = os.Remove(w.temporary) }

// restore puts a fragment's file back, as far as that can be where another one could not be stored.
func (s store) restore(f Fragment) {
	if f.Generation == 0 {
		_ = os.Remove(filepath.Join(string(s), f.Name+stored))
		return
	}
	if w, err := s.write(f); err == nil {
		_ = w.commit()
	}
}
