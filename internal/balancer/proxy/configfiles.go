// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/journal"
)

// save saves HAProxy's state. A file that cannot be written is reported as a fault, and is no error here.
func (e *engine) save() error {
	e.running.Unwritten = e.unwritten
	contents, err := json.Marshal(e.running)
	if err != nil {
		return fmt.Errorf("saving the state of HAProxy: %v", err)
	}
	if err := e.stateFile.Save(contents); err != nil && !durable.Unwritable(err) {
		return fmt.Errorf("saving the state of HAProxy: %v", err)
	}
	return nil
}

// load returns the saved state, or nil if there is none.
func (e *engine) load() (*savedState, error) {
	contents, err := e.stateFile.Load(os.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var k savedState
	if err == nil {
		err = json.Unmarshal(contents, &k)
	}
	if err == nil && k.Rendering == nil {
		err = errors.New("it has no configuration")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of HAProxy from %s: %v", e.host.state(), err)
	}
	return &k, nil
}

// write writes the files of a candidate, HAProxy's configuration last.
func (e *engine) write(c *candidate) error {
	for _, dir := range []string{e.host.Dir, e.host.root()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making the directory of the proxy engine: %v", err)
		}
	}
	// Workers run as another user with this directory as their root; it stays empty.
	if info, err := os.Stat(e.host.root()); err != nil || info.Mode().Perm() != 0o755 {
		if err := os.Chmod(e.host.root(), 0o755); err != nil {
			return fmt.Errorf("making the directory of the proxy engine: %v", err)
		}
	}
	if err := c.extras(); err != nil {
		return err
	}
	return e.writeFile(c.rendering)
}

// writeFile writes HAProxy's configuration, for HAProxy to read. A file that has the contents already, as after an
// interrupted reload, is not written again, so that HAProxy can start from it on a full disk.
func (e *engine) writeFile(r *Rendering) error {
	err := e.config.Save([]byte(r.String()))
	if e.unwritten = err != nil && !isFile(e.host.file(), []byte(r.String())); e.unwritten {
		return fmt.Errorf("writing HAProxy's configuration: %w", err)
	}
	e.filed = r
	return nil
}

// isFile reports whether the file at a path has these contents.
func isFile(path string, contents []byte) bool {
	there, err := os.ReadFile(path)
	return err == nil && bytes.Equal(there, contents)
}

// replaceExtra writes a file that the configuration names, unless it has these contents.
func replaceExtra(path string, contents []byte) error {
	if isFile(path, contents) {
		return nil
	}
	return journal.Replace(path, contents, 0o600)
}

// extras writes the files that the configuration names.
func (c *candidate) extras() error {
	for path, contents := range c.rendering.Files {
		if err := replaceExtra(path, []byte(contents)); err != nil {
			return fmt.Errorf("writing a file of HAProxy's configuration: %w", err)
		}
	}
	for path, original := range c.rendering.Certificates {
		if err := replaceExtra(path, c.certificates[original].pem); err != nil {
			return fmt.Errorf("writing HAProxy's copy of the certificate %s: %w", original, err)
		}
	}
	for path, original := range c.rendering.Authorities {
		if err := replaceExtra(path, c.authorities[original].contents); err != nil {
			return fmt.Errorf("writing HAProxy's copy of the authorities in %s: %w", original, err)
		}
	}
	return nil
}

// extraNames are the prefixes of the names of files that a configuration names.
var extraNames = []string{"clients-", "certificate-", "authorities-"}

func isExtra(name string) bool {
	return slices.ContainsFunc(extraNames, func(p string) bool { return strings.HasPrefix(name, p) })
}

// remove removes the engine's files, and their directory if it has no other.
func (e *engine) remove() error {
	found, err := os.ReadDir(e.host.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ours := []string{e.host.file(), e.host.socket(), e.host.master(), e.host.messages(), e.host.root(), e.host.state(),
		e.host.counts()}
	for _, f := range found {
		path := filepath.Join(e.host.Dir, f.Name())
		// HAProxy binds a socket under another name first.
		bound := strings.HasPrefix(path, e.host.socket()+".") || strings.HasPrefix(path, e.host.master()+".")
		if bound || isExtra(f.Name()) || slices.Contains(ours, strings.TrimSuffix(path, journal.NewSuffix)) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	if err = errors.Join(err, os.Remove(e.host.Dir)); err != nil {
		return fmt.Errorf("removing the files of the proxy engine: %v", err)
	}
	return nil
}

// removeUnused removes files that no configuration names any more.
func (e *engine) removeUnused() {
	found, err := os.ReadDir(e.host.Dir)
	if err != nil {
		return
	}
	for _, f := range found {
		path := filepath.Join(e.host.Dir, f.Name())
		_, file := e.running.Rendering.Files[path]
		_, certificate := e.running.Rendering.Certificates[path]
		_, authorities := e.running.Rendering.Authorities[path]
		if isExtra(f.Name()) && !file && !certificate && !authorities {
			os.Remove(path)
		}
	}
}
