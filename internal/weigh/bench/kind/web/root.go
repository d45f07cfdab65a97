// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// writeRoot writes the web servers' file, once for all namespaces or on each machine, and returns its directory.
func writeRoot(ctx context.Context, l *lab.Lab, fileBytes int) (root func(*lab.Host) string, err error) {
	if !l.Remote() {
		dir := filepath.Join(l.Dir, "html")
		return func(*lab.Host) string { return dir }, fill(filepath.Join(dir, FileName), fileBytes)
	}
	root = func(server *lab.Host) string { return filepath.Join(server.Dir, "html") }
	return root, lab.Each(l.Servers, func(server *lab.Host) error {
		_, err := fillTask.On(ctx, server, filled{filepath.Join(root(server), FileName), fileBytes})
		return err
	})
}

// filled is a file of a given size.
type filled struct {
	Path  string
	Bytes int
}

var fillTask = lab.NewTask("fill-file", func(_ context.Context, _ *lab.Host, f filled) (struct{}, error) {
	return struct{}{}, fill(f.Path, f.Bytes)
})

// fill writes a file of a given size, and creates its directory.
func fill(path string, size int) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, bytes.Repeat([]byte{'x'}, size), 0o644)
	}
	if err != nil {
		return fmt.Errorf("making the web servers' file: %w", err)
	}
	return nil
}
