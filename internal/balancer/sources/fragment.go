// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// Errors that callers may test for. Nothing was changed then.
var (
	// ErrNotFound: there is no such source, service or backend.
	ErrNotFound = errors.New("not found")
	// ErrOwned: another source has the service.
	ErrOwned = errors.New("owned by another source")
	// ErrChanged: the source is not in the state that the caller expects.
	ErrChanged = errors.New("changed meanwhile")
	// ErrMalformed: the text cannot be read, whatever the configuration is.
	ErrMalformed = errors.New("cannot be read")
	// ErrNotStored: the change could not be written, and would be lost at a restart.
	ErrNotStored = errors.New("not stored")
)

// Fragment is a source beside the file.
type Fragment struct {
	Name string
	// Generation counts the changes of it, from 1.
	Generation uint64
	// Text is its services as YAML; empty where it has none.
	Text []byte
	// By is the name of the last client that changed it, and At the time.
	By string
	At time.Time
}

// TagOf is the Tag of a source as a whole.
func TagOf(generation uint64) string { return "g" + strconv.FormatUint(generation, 10) }

// GenerationOf returns the generation of a source as a whole that has a Tag.
func GenerationOf(tag string) (uint64, error) {
	digits, found := strings.CutPrefix(tag, "g")
	generation, err := strconv.ParseUint(digits, 10, 64)
	if !found || err != nil {
		return 0, fmt.Errorf("%q is not the tag of a source", tag)
	}
	return generation, nil
}

// readFile reads a configuration file; the parser refuses one that is too large.
func readFile(path string) (config.Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return config.Source{}, fmt.Errorf("read the configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, config.MaxBytes+1))
	if err != nil {
		return config.Source{}, fmt.Errorf("read the configuration: %w", err)
	}
	return config.Source{Name: path, Data: data}, nil
}
