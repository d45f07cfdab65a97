// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes a file on the host, and makes its directory. Other users may read the file.
func (h *Host) WriteFile(path string, data []byte) error {
	_, err := runTask(writeFileTask, h, fileContent{path, data, 0o644})
	return err
}

// WriteSecret writes a file on the host that only root may read. The file should be in the host's directory, with which
// it is removed.
func (h *Host) WriteSecret(path string, data []byte) error {
	_, err := runTask(writeFileTask, h, fileContent{path, data, 0o600})
	return err
}

// ReadEnd reads the last bytes of a file on the host, at most a given number; none if the file does not exist.
func (h *Host) ReadEnd(path string, most int) ([]byte, error) {
	return runTask(readEndTask, h, fileEnd{path, most})
}

// Empty truncates a file on the host, if it exists.
func (h *Host) Empty(path string) error {
	_, err := runTask(emptyTask, h, path)
	return err
}

type fileContent struct {
	Path string
	Data []byte
	// Mode is the mode of a file that does not exist yet.
	Mode fs.FileMode
}

type fileEnd struct {
	Path string
	Most int
}

var writeFileTask = NewTask("write-file", func(_ context.Context, _ *Host, f fileContent) (nothing, error) {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return nothing{}, err
	}
	return nothing{}, os.WriteFile(f.Path, f.Data, f.Mode)
})

var readEndTask = NewTask("read-file", func(_ context.Context, _ *Host, f fileEnd) ([]byte, error) {
	text, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text[max(len(text)-f.Most, 0):], err
})

var emptyTask = NewTask("empty-file", func(_ context.Context, h *Host, path string) (nothing, error) {
	if err := os.Truncate(path, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nothing{}, fmt.Errorf("emptying %s on %s: %w", path, h.Name, err)
	}
	return nothing{}, nil
})
