// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/journal"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/sysctl"
)

const (
	journalFormat  = "jeoul-network-changes"
	journalVersion = 1
)

const (
	kindSysctl  = "sysctl"
	kindAddress = "address"
	kindClsact  = "clsact"
	kindFilter  = "filter"
	kindFeature = "feature"
)

// contents is a journal file: one JSON object, replaced as a whole before a change is made and after it was undone.
type contents struct {
	identity
	Changes []change `json:"changes"` // oldest first
}

// identity identifies the journal's owner: settings belong to one network namespace of one boot.
type identity struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	journal.Place
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// change is one change to the host, with the values that undoing it needs.
type change struct {
	Kind string `json:"kind"`

	// For a sysctl: its name as the caller wrote it, and its values.
	Sysctl string `json:"sysctl,omitempty"`
	Old    string `json:"old,omitempty"`
	New    string `json:"new,omitempty"`

	// For a change to a link: its name and index. The index identifies the link even after it was renamed. A sysctl of
	// a link has only the index, which journals of earlier versions lack.
	Link  string `json:"link,omitempty"`
	Index int    `json:"index,omitempty"`

	// For an address, which is added as a /32 or /128.
	Address netip.Addr `json:"address,omitzero"`

	// For a TC filter: its name and its side.
	Filter string `json:"filter,omitempty"`
	Egress bool   `json:"egress,omitempty"`

	// For a feature that was switched off: the kernel's name for it.
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
	place, err := journal.Place{Boot: strings.TrimSpace(string(boot))}.In(ns)
	if err != nil {
		return identity{}, err
	}
	return identity{Format: journalFormat, Version: journalVersion, Place: place, Name: name, PID: os.Getpid()}, nil
}

// decodeJournal reads a journal file. Any error is ErrCorrupt.
func decodeJournal(data []byte) (contents, error) {
	fail := func(err error) (contents, error) {
		return contents{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var c contents
	if err := journal.Decode(data, &c); err != nil {
		return fail(err)
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

// lockedJournal is the file of changes that were made, or are about to be, and the lock that shows that the owner is
// alive. If the file cannot be written, the changes are kept in memory, and the fault is recorded: a change to the host
// does not wait for room on a disk.
type lockedJournal struct {
	path  string
	id    identity
	files *durable.Files
	// content is the file and its copy.
	content *durable.Content
	// lock is nil where its file cannot be created: then the other locks of a balancer exclude another process.
	// retryLock retries that, for files.
	lock      *os.File
	retryLock func() error
	// changes are the changes in force, oldest first.
	changes []change
}

const (
	journalNoun = "the journal of network changes"
	lockNoun    = "the lock of network changes"
)

// lockSuffix is the suffix of the lock's file. It is a separate file, because the journal is replaced at each change.
const lockSuffix = ".lock"

// lockJournal takes the lock that belongs to path. Errors: ErrBusy, ErrNoRights.
func lockJournal(path string, id identity, files *durable.Files, again func() error) (*lockedJournal, error) {
	content := files.Content(journalNoun, path, "journal", 0o600)
	// An owner that closes removes the lock file, perhaps between our open and our lock: then the lock is on a file
	// that no other process will find.
	for range 100 {
		file, err := openLock(path + lockSuffix)
		if durable.Unwritable(err) {
			files.RecordRetryable(lockNoun, path+lockSuffix, err, again)
			return &lockedJournal{path: path, id: id, files: files, content: content, retryLock: again}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("lock the journal of network changes: %w: %s", wrapRights(err), stateDirHint)
		}
		j := &lockedJournal{path: path, id: id, files: files, content: content, lock: file, retryLock: again}
		found, err := j.tryLock()
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

// openLock opens the file of a lock for reading: an existing file can then be locked on a read-only file system, and
// does not prevent remounting one read-only.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// lockAgain takes the lock if that failed before, or if its file was removed.
func (j *lockedJournal) lockAgain() error {
	path := j.path + lockSuffix
	if j.lock != nil {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			return nil
		}
		j.lock.Close()
		j.lock = nil
		_ = j.files.FileSystem().MkdirAll(filepath.Dir(path), 0o755)
	}
	file, err := openLock(path)
	if err == nil {
		j.lock = file
		if found, failed := j.tryLock(); !found || failed != nil {
			j.lock, err = nil, errors.Join(failed, file.Close(), errNotTaken)
		}
	}
	j.files.RecordRetryable(lockNoun, path, err, j.retryLock)
	return err
}

var errNotTaken = errors.New("another process has taken it")

// tryLock locks the open lock file and reports whether it is still the one at its path.
func (j *lockedJournal) tryLock() (bool, error) {
	if err := unix.Flock(int(j.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, fmt.Errorf("%w%s", ErrBusy, j.owner())
		}
		return false, fmt.Errorf("lock %s: %w", j.lock.Name(), err)
	}
	held, err := j.lock.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(j.lock.Name())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, now), err
}

// Running reports whether a process holds the lock for name in the calling thread's network namespace, as Open takes
// it. It changes nothing. dir "" means DefaultDir.
func Running(dir, name string) (bool, error) {
	ns, err := namespace.Current()
	if err != nil {
		return false, err
	}
	defer ns.Close()
	lock, err := os.Open(pathOf(cmp.Or(dir, DefaultDir), name, ns) + lockSuffix)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether another process has changed this host's network: %w", wrapRights(err))
	}
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// pathOf returns the path of the journal of a name.
func pathOf(dir, name string, ns *namespace.Namespace) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d%s", name, ns.Inode(), JournalSuffix))
}

// owner returns " (process N)" for the journal's owner, or nothing.
func (j *lockedJournal) owner() string {
	c, err := j.read()
	if err != nil || c.PID == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", c.PID)
}

// load reads the changes that the last owner has not undone, or returns why they no longer matter.
func (j *lockedJournal) load() (why string, err error) {
	c, err := j.read()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
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

func (j *lockedJournal) read() (contents, error) {
	data, err := j.content.Load(func(path string) ([]byte, error) { return journal.Read(path, ErrCorrupt) })
	if err != nil {
		return contents{}, wrapRights(err)
	}
	c, err := decodeJournal(data)
	if err != nil {
		return contents{}, fmt.Errorf("%w: look at it, take back by hand what it lists, and remove it", err)
	}
	return c, nil
}

// append writes changes into the journal, before they are made. A failed write is recorded as a fault, and the changes
// are kept in memory.
func (j *lockedJournal) append(changes ...change) error {
	if len(changes) == 0 {
		return nil
	}
	return j.replace(append(slices.Clip(j.changes), changes...))
}

// forget removes changes from the journal: among equal ones, the last.
func (j *lockedJournal) forget(changes ...change) error {
	removed := make(map[change]int, len(changes))
	for _, ch := range changes {
		removed[ch]++
	}
	var remain []change
	for _, ch := range slices.Backward(j.changes) {
		if removed[ch] > 0 {
			removed[ch]--
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

// replace replaces the changes, in memory and atomically in the file. It returns an error if a journal cannot have that
// many changes, or for a failed write that is not the file system's fault.
func (j *lockedJournal) replace(changes []change) error {
	data, err := encodeJournal(contents{j.id, changes})
	if err == nil && len(data) > journal.MaxSize {
		return fmt.Errorf("write the journal of network changes: %d changes are more than it holds", len(changes))
	}
	if err == nil {
		_ = j.lockAgain() // a failure is recorded, and retried
		err = j.content.Save(data)
	}
	if err != nil && !durable.Unwritable(err) {
		return fmt.Errorf("write the journal of network changes: %w: %s", wrapRights(err), stateDirHint)
	}
	j.changes = changes
	return nil
}

// remove deletes the journal and its lock, while the lock is still held.
func (j *lockedJournal) remove() error {
	failed := j.content.Forget()
	if err := os.Remove(j.path + lockSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return fmt.Errorf("remove the journal of network changes: %w", failed)
	}
	return nil
}

func (j *lockedJournal) close() {
	if j.lock != nil {
		j.lock.Close()
	}
}

// checkName accepts only names under net: the others do not belong to a network
// namespace.
func checkName(name string) error {
	path, err := sysctl.Relative(name)
	if name == "net" || err == nil && !strings.HasPrefix(path, "net/") {
		return fmt.Errorf("sysctl %q: only names that begin with net. are changed here", name)
	}
	return err
}
