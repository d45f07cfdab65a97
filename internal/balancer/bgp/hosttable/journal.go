// SPDX-License-Identifier: Apache-2.0

package hosttable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/journal"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

const (
	journalFormat  = "jeoul-vip-routes"
	journalVersion = 1
)

// contents is the journal: the routes that are added, or about to be.
type contents struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	journal.Place
	Routes []route `json:"routes"`
}

// journalFile is the file of routes, which are valid in one boot and network namespace.
type journalFile struct {
	path    string
	place   journal.Place
	content *durable.Content
}

func journalIn(path string, ns *namespace.Namespace, files *durable.Files) (journalFile, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return journalFile{}, fmt.Errorf("find out which boot this is: %w", err)
	}
	place, err := journal.Place{Boot: strings.TrimSpace(string(boot))}.In(ns)
	return journalFile{path, place, files.Content("the journal of routes", path, "routes", 0o600)}, err
}

// read returns the routes of the journal; none where there is no file, or one of another boot or namespace, whose
// routes went with that.
func (j journalFile) read() ([]route, error) {
	data, err := journal.Read(j.path, ErrCorrupt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of routes %s: %w", j.path, err)
	}
	c, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: remove the routes of protocol 74 by hand, and then the file", j.path, err)
	}
	if c.Place != j.place {
		return nil, nil
	}
	return c.Routes, nil
}

// decode reads a journal. Any error is ErrCorrupt.
func decode(data []byte) (contents, error) {
	var c contents
	if err := journal.Decode(data, &c); err != nil {
		return contents{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if c.Format != journalFormat || c.Version != journalVersion {
		return contents{}, fmt.Errorf("%w: it is %q of version %d, and this program knows %q of version %d", ErrCorrupt,
			c.Format, c.Version, journalFormat, journalVersion)
	}
	for i, r := range c.Routes {
		if !r.VIP.IsValid() || r.VIP.Zone() != "" || r.Metric <= 0 || r.Table == unix.RT_TABLE_UNSPEC ||
			r.Table == unix.RT_TABLE_LOCAL {
			return contents{}, fmt.Errorf("%w: routes[%d] is none of a VIP", ErrCorrupt, i)
		}
	}
	return c, nil
}

// write replaces the journal; without routes there is none. A file that cannot be written does not prevent a route:
// files report the fault, and write the file again.
func (j journalFile) write(routes []route) error {
	if len(routes) == 0 {
		if err := j.content.Save(nil); err != nil && !durable.Unwritable(err) {
			return fmt.Errorf("remove the journal of routes: %w", err)
		}
		return nil
	}
	slices.SortFunc(routes, func(a, b route) int { return strings.Compare(a.String(), b.String()) })
	data, err := json.Marshal(contents{journalFormat, journalVersion, j.place, routes})
	if err == nil {
		err = j.content.Save(append(data, '\n'))
	}
	if err != nil && !durable.Unwritable(err) {
		return fmt.Errorf("write down in %s which routes are made: %w", j.path, err)
	}
	return nil
}
