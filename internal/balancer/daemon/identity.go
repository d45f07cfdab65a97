// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
)

// A balancer's files go by the interface that carried its VIPs when it was started. Where a
// reload has changed that, a file with the name of the new one leads the next process, and
// `jeoul detach`, to the files of the old.

// alias is such a file.
type alias struct {
	path   string
	cookie uint64
}

// aliasUnwritten ends the name of one that is being written.
const aliasSuffix, aliasUnwritten = ".alias", ".alias.new"

func (i instance) alias(link string) alias {
	return alias{filepath.Join(i.stateDir, fmt.Sprintf("%s-%d%s", journalName(link), i.inode, aliasSuffix)), i.cookie}
}

// read returns the name that an interface stands for; "" if it has none but its own. A file that was left of a network
// namespace that is gone counts for nothing.
func (a alias) read() (journal string, err error) {
	data, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("finding out which balancer has the interface: %w", err)
	}
	var cookie uint64
	if _, err := fmt.Sscan(string(data), &journal, &cookie); err != nil {
		return "", fmt.Errorf("%s does not say which balancer has the interface (%v): remove it", a.path, err)
	}
	if cookie != a.cookie {
		return "", nil
	}
	return journal, nil
}

// write records the name that the interface stands for.
func (a alias) write(journal string) error {
	text := fmt.Appendf(nil, "%s %d\n", journal, a.cookie)
	if err := durable.Replace(durable.OS, a.path, text, 0o600, false); err != nil {
		return fmt.Errorf("noting which balancer has the interface: %w", err)
	}
	return nil
}

// removeAliases removes the files of all interfaces that stand for the instance, but one.
func (i instance) removeAliases(but string) (err error) {
	paths, _ := filepath.Glob(filepath.Join(i.stateDir, fmt.Sprintf("*-%d%s*", i.inode, aliasSuffix)))
	for _, path := range paths {
		journal, failed := (alias{path, i.cookie}).read()
		// A process may have been killed while it wrote one.
		unwritten := failed != nil && strings.HasSuffix(path, aliasUnwritten)
		if unwritten || failed == nil && journal == i.journal && (but == "" || path != i.alias(but).path) {
			err = errors.Join(err, removeFile(path))
		}
	}
	return err
}

// identity is the interfaces by which a running balancer is known: see control.Identity.
type identity struct{ instance instance }

// Register has the balancer known by an interface that no other one has.
func (n identity) Register(link string) error {
	own := n.instance.named(journalName(link))
	if own.journal == n.instance.journal {
		return nil
	}
	journal, err := n.instance.alias(link).read()
	if err != nil {
		return err
	}
	if journal != "" && journal != n.instance.journal {
		return fmt.Errorf(
			"%s carries the VIPs of another balancer, which was started on %s: stop it, or take it away with `jeoul detach --interface %s`",
			link, strings.TrimPrefix(journal, journalPrefix), link)
	}
	store, err := pins.Find(own.stateDir, own.name)
	if err == nil {
		store.Close()
		return fmt.Errorf(
			"a data plane without a process is kept for %s: take it away with `jeoul detach --interface %s`",
			link, link)
	}
	if !errors.Is(err, pins.ErrNothing) {
		return fmt.Errorf("%s carries the VIPs of another balancer: %w", link, err)
	}
	// Its lock is held until the name is known: see instance.recheck.
	claim, err := hostnet.Open(own.stateDir, own.journal)
	if err != nil {
		return fmt.Errorf("%s carries the VIPs of another balancer: %w", link, err)
	}
	return errors.Join(n.instance.alias(link).write(n.instance.journal), claim.Close())
}

// Unregister has the balancer not known by an interface any more.
func (n identity) Unregister(link string) error {
	if journalName(link) == n.instance.journal {
		return nil // its files have that name
	}
	return removeFile(n.instance.alias(link).path)
}

// recheck says, once the instance's locks are held, that another balancer has taken its
// interface meanwhile.
func (i instance) recheck(link string) error {
	now, err := instanceOn(link, i.stateDir)
	if err == nil && now.journal != i.journal {
		err = hostnet.ErrBusy
	}
	return err
}
