// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/namespace"
)

const (
	journalFormat  = "jeoul-network-changes"
	journalVersion = 1
	// maxJournal bounds what is read of a file that may not be a journal at
	// all, in bytes; a change takes about 150.
	maxJournal = 16 << 20
)

const (
	kindSysctl  = "sysctl"
	kindAddress = "address"
	kindClsact  = "clsact"
	kindFilter  = "filter"
	kindFeature = "feature"
)

// contents is a journal file: one JSON object, replaced as a whole before a
// change is made and after it was taken back.
type contents struct {
	identity
	Changes []change `json:"changes"` // oldest first
}

// identity says whose journal it is: settings are those of one network
// namespace of one boot.
type identity struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Boot    string `json:"boot"`
	// Namespace is the inode number; Cookie tells apart two namespaces that
	// had the same one, one after the other (0: the kernel has no cookies).
	Namespace uint64 `json:"namespace"`
	Cookie    uint64 `json:"cookie"`
	Name      string `json:"name"`
	PID       int    `json:"pid"`
}

// change is one change to the host, with what undoing it needs. Two that are
// equal are the same one.
type change struct {
	Kind string `json:"kind"`

	// Of a sysctl: its name as the caller wrote it, and its values.
	Sysctl string `json:"sysctl,omitempty"`
	Old    string `json:"old,omitempty"`
	New    string `json:"new,omitempty"`

	// Of what is on a link. The index identifies it even if it was renamed since.
	Link  string `json:"link,omitempty"`
	Index int    `json:"index,omitempty"`

	// Of an address, which is put there as a /32 or /128.
	Address netip.Addr `json:"address,omitzero"`

	// Of a filter in TC: its name, and on which side it is.
	Filter string `json:"filter,omitempty"`
	Egress bool   `json:"egress,omitempty"`

	// Of a feature that was switched off: the kernel's name for it.
	Feature string `json:"feature,omitempty"`
}

func (ch change) check() error {
	switch ch.Kind {
	case kindSysctl:
		return checkName(ch.Sysctl)
	case kindAddress:
		if ch.Link == "" || ch.Index <= 0 || !ch.Address.IsValid() || ch.Address.Zone() != "" {
			return errors.New("link, index or address is missing or wrong")
		}
		return nil
	case kindClsact, kindFilter:
		if ch.Link == "" || ch.Index <= 0 || (ch.Kind == kindFilter) != (ch.Filter != "") {
			return errors.New("link, index or filter is missing or wrong")
		}
		return nil
	case kindFeature:
		if ch.Link == "" || ch.Index <= 0 || ch.Feature == "" {
			return errors.New("link, index or feature is missing or wrong")
		}
		return nil
	}
	return fmt.Errorf("kind %q is unknown", ch.Kind)
}

// identify returns the identity of a journal that this process writes in ns.
func identify(ns *namespace.Namespace, name string) (identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, fmt.Errorf("find out which boot this is: %w", err)
	}
	cookie, err := ns.Cookie()
	if err != nil {
		return identity{}, err
	}
	return identity{
		Format: journalFormat, Version: journalVersion,
		Boot: strings.TrimSpace(string(boot)), Namespace: ns.Inode(), Cookie: cookie,
		Name: name, PID: os.Getpid(),
	}, nil
}

// decodeJournal reads a journal file. Any error is ErrCorrupt.
func decodeJournal(data []byte) (contents, error) {
	fail := func(err error) (contents, error) {
		return contents{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var c contents
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return fail(err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fail(errors.New("something follows it"))
	}
	if c.Format != journalFormat {
		return fail(fmt.Errorf("format is %q, not %q", c.Format, journalFormat))
	}
	if c.Version != journalVersion {
		return fail(fmt.Errorf("version is %d, and this jeoul knows %d", c.Version, journalVersion))
	}
	for i, ch := range c.Changes {
		if err := ch.check(); err != nil {
			return fail(fmt.Errorf("changes[%d]: %w", i, err))
		}
	}
	return c, nil
}

func encodeJournal(c contents) ([]byte, error) {
	data, err := json.MarshalIndent(c, "", " ")
	return append(data, '\n'), err
}

// journal is the file of changes that are made, or about to be, and the lock
// that says that its owner lives.
type journal struct {
	path string
	id   identity
	lock *os.File
	// changes are those in the file, oldest first.
	changes []change
}

// The lock is on a file of its own, since the journal's is replaced at each change.
const lockSuffix, newSuffix = ".lock", ".new"

// lockJournal takes the lock that belongs to path. Errors: ErrBusy, ErrNoRights.
func lockJournal(path string, id identity) (*journal, error) {
	// An owner that closes removes the lock file, perhaps between our opening
	// it and our locking it: then the lock is on a file nobody else will find.
	for range 100 {
		file, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock the journal of network changes: %w: %s", rights(err), elsewhere)
		}
		j := &journal{path: path, id: id, lock: file}
		found, err := j.take()
		if found && err == nil {
			return j, nil
		}
		file.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("lock %s: other processes keep replacing it", path+lockSuffix)
}

// take locks the open lock file and reports whether it is still the one at its path.
func (j *journal) take() (bool, error) {
	if err := unix.Flock(int(j.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, fmt.Errorf("%w%s", ErrBusy, j.owner())
		}
		return false, fmt.Errorf("lock %s: %w", j.lock.Name(), err)
	}
	mine, err := j.lock.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(j.lock.Name())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, now), err
}

// owner returns " (process N)" for the journal's owner, or nothing.
func (j *journal) owner() string {
	c, err := j.read()
	if err != nil || c.PID == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", c.PID)
}

// load takes over the changes that the last owner has not taken back; or none,
// and why they do not matter any more.
func (j *journal) load() (why string, err error) {
	c, err := j.read()
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	switch {
	case c.Boot != j.id.Boot:
		return "ignored: the machine was started anew since, which took its changes back", nil
	case c.Namespace != j.id.Namespace, c.Cookie != j.id.Cookie:
		return "ignored: it is about a network namespace that is gone", nil
	}
	j.changes = c.Changes
	return "", nil
}

func (j *journal) read() (contents, error) {
	file, err := os.OpenFile(j.path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return contents{}, rights(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return contents{}, err
	}
	// What it says is done with our rights: nobody else may have written it.
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || (stat.Uid != 0 && int(stat.Uid) != os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return contents{}, fmt.Errorf("%w: others than its owner could have written it: look at it, and remove it", ErrCorrupt)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxJournal+1))
	if err != nil {
		return contents{}, err
	}
	if len(data) > maxJournal {
		return contents{}, fmt.Errorf("%w: it is longer than %d bytes", ErrCorrupt, maxJournal)
	}
	c, err := decodeJournal(data)
	if err != nil {
		return contents{}, fmt.Errorf("%w: look at it, take back by hand what it lists, and remove it", err)
	}
	return c, nil
}

// add writes changes down; only then may they be made.
func (j *journal) add(changes ...change) error {
	if len(changes) == 0 {
		return nil
	}
	return j.replace(append(slices.Clip(j.changes), changes...))
}

// forget strikes out changes: of those that are equal, the last.
func (j *journal) forget(changes ...change) error {
	gone := make(map[change]int, len(changes))
	for _, ch := range changes {
		gone[ch]++
	}
	var remain []change
	for _, ch := range slices.Backward(j.changes) {
		if gone[ch] > 0 {
			gone[ch]--
			continue
		}
		remain = append(remain, ch)
	}
	if len(remain) == len(j.changes) {
		return nil
	}
	slices.Reverse(remain)
	return j.replace(remain)
}

// replace puts changes into the file, whole or not at all.
func (j *journal) replace(changes []change) error {
	data, err := encodeJournal(contents{j.id, changes})
	if err == nil && len(data) > maxJournal {
		return fmt.Errorf("write the journal of network changes: %d changes are more than it holds", len(changes))
	}
	if err == nil {
		err = writeFile(j.path+newSuffix, data)
	}
	if err == nil {
		err = os.Rename(j.path+newSuffix, j.path)
	}
	if err != nil {
		return fmt.Errorf("write the journal of network changes: %w: %s", rights(err), elsewhere)
	}
	j.changes = changes
	return nil
}

// writeFile follows no link that somebody may have put into a directory that
// others can write to.
func writeFile(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// remove deletes the journal and its lock, while the lock is still held.
func (j *journal) remove() error {
	var failed error
	for _, path := range []string{j.path, j.path + newSuffix, j.path + lockSuffix} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return fmt.Errorf("remove the journal of network changes: %w", failed)
	}
	return nil
}

func (j *journal) close() { j.lock.Close() }
