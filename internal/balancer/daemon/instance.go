// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// instance is a balancer's name among those of a host, and the directory of the files that are to outlive its process.
type instance struct {
	stateDir string
	// journal is the name of its network changes, and name of everything else: of the
	// interface that carried its VIPs when it was first started, and of its network namespace.
	journal, name string
	cookie, inode uint64
	// files write the kept files; nil before it is known where else their content can be.
	files *durable.Files
}

// instanceOn returns the one whose first interface that is: by the name of another interface,
// if it was started on that and a reload has changed it.
func instanceOn(link, stateDir string) (instance, error) {
	ns, err := namespace.Current()
	if err != nil {
		return instance{}, err
	}
	defer ns.Close()
	cookie, err := ns.Cookie()
	if err != nil {
		return instance{}, err
	}
	i := instance{stateDir: stateDir, cookie: cookie, inode: ns.Inode()}
	journal, err := i.alias(link).read()
	if err != nil {
		return instance{}, err
	}
	return i.named(cmp.Or(journal, journalName(link))), nil
}

// named returns the instance of a name in the same network namespace.
func (i instance) named(journal string) instance {
	i.journal, i.name = journal, fmt.Sprintf("%s-%d", journal, i.inode)
	return i
}

func (i instance) file(kind string) string { return filepath.Join(i.stateDir, i.name+"."+kind) }

// PreviousSources is the directory in which earlier versions kept the configuration that is not in the file, for the
// balancer whose first interface is link: a reboot took it away.
func PreviousSources(link, stateDir string) (string, error) {
	i, err := instanceOn(link, stateDir)
	return i.file(fmt.Sprintf("%d.sources", i.cookie)), err
}

// The kinds of an instance's files, besides the journal of network changes; there are several snapshots.
const kindSnapshot, kindOperations, kindHealth, kindEjections = "snapshot", "operations", "health", "ejections"

// kindDiscovered is the kind of a file that outlives a balancer that has ended, too: the next one serves the backends
// discovered before while the origins are away.
const kindDiscovered = "discovered"

// removeFiles removes those files, also unfinished ones of a process that was killed while it wrote one, and those of
// another boot.
func (i instance) removeFiles() error {
	entries, err := os.ReadDir(i.stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		kind, ours := strings.CutPrefix(e.Name(), i.name+".")
		kind, _, _ = strings.Cut(kind, ".")
		if ours && slices.Contains([]string{kindSnapshot, kindOperations, kindHealth, kindEjections}, kind) {
			err = errors.Join(err, removeFile(filepath.Join(i.stateDir, e.Name())))
		}
	}
	return err
}

// keeperLocation says where the data plane is kept in a store.
func (i instance) keeperLocation(store *pins.Store) *keeper.Location {
	return &keeper.Location{Store: store, Snapshot: i.file(kindSnapshot), Cookie: i.cookie, Files: i.files}
}

// removeFile removes a file, if it is there.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

const journalPrefix = "run-"

// journalName is the name under which a balancer's changes are noted: that of the
// interface that carries its VIPs, of the characters that such a name may have.
func journalName(link string) string {
	return journalPrefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, link)
}
