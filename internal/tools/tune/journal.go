// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/journal"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

const (
	journalFormat  = "jeoul-tune-journal"
	journalVersion = 1
)

// StateDir is the default directory of journals.
const StateDir = "/var/lib/jeoul/tune"

// header is the first line of a journal, which identifies its owner.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Machine is the content of /etc/machine-id.
	Machine string `json:"machine"`
	journal.Place
	Role    Role      `json:"role"`
	Started time.Time `json:"started"`
}

// The operations in the lines of a journal.
const (
	opSet  = "set"  // a setting is about to be changed
	opKeep = "keep" // a setting may be changed by another change
	opFile = "file" // a file is about to be written
	// opUndone records that the change in a line was undone.
	opUndone = "undone"
	// opPersisted records that the changes in the lines before also apply at the next boot.
	opPersisted = "persisted"
)

// record is a line of a journal after the first one.
type record struct {
	Op  string       `json:"op"`
	Key *setting.Key `json:"key,omitempty"`
	Old string       `json:"old"`
	New string       `json:"new"`
	// Path is a file's path. Existed is whether the file existed. Made are the directories that were created for it.
	Path    string   `json:"path,omitempty"`
	Existed bool     `json:"existed,omitempty"`
	Made    []string `json:"made,omitempty"`
	// Line is the number of the undone line. The header is line 0.
	Line int `json:"line,omitempty"`
	// Persisted is set when the journal is read.
	Persisted bool `json:"persisted,omitempty"`
}

func (r record) check() error {
	switch r.Op {
	case opSet, opKeep:
		if r.Key == nil || r.Key.Kind == setting.KindCmdline || r.Key.Kind == setting.KindLimit {
			return fmt.Errorf("%s without a setting", r.Op)
		}
		return r.Key.Check()
	case opFile:
		if !slices.Contains(ownFiles, r.Path) {
			return fmt.Errorf("%q is none of the files that are written", r.Path)
		}
		for _, dir := range r.Made {
			if !strings.HasPrefix(r.Path, dir+"/") || filepath.Clean(dir) != dir {
				return fmt.Errorf("%q is no directory of %s", dir, r.Path)
			}
		}
		return nil
	case opUndone, opPersisted:
		return nil
	}
	return fmt.Errorf("%q is nothing that a journal says", r.Op)
}

// untilReboot reports whether a persisted change is of one boot only. The next boot makes the queues anew, and gives
// the number of an interrupt to any device; the unit sets their affinities again, which is another change.
func (r record) untilReboot() bool {
	return r.Op == opKeep || r.Key.Kind == setting.KindFile && strings.HasPrefix(r.Key.Name, "/proc/irq/")
}

// decodeJournal reads a journal. It drops a last line without an end: its writer died before it made the change. Errors
// are ErrJournal.
func decodeJournal(data []byte) (header, []record, error) {
	var h header
	fail := func(line int, err error) (header, []record, error) {
		return h, nil, fmt.Errorf("%w: line %d: %w", ErrJournal, line+1, err)
	}
	var records []record
	for number, line := range bytes.SplitAfter(data, []byte("\n")) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			if number == 0 && len(line) > 0 {
				return fail(0, io.ErrUnexpectedEOF)
			}
			break
		}
		if number == 0 {
			if err := journal.Decode(line, &h); err != nil {
				return fail(0, err)
			}
			if h.Format != journalFormat || h.Version != journalVersion {
				return fail(0, fmt.Errorf("format %q version %d, and this jeoul knows %s version %d", h.Format,
					h.Version, journalFormat, journalVersion))
			}
			continue
		}
		var r record
		if err := errors.Join(journal.Decode(line, &r), r.check()); err != nil {
			return fail(number, err)
		}
		if r.Op == opUndone && (r.Line < 1 || r.Line > len(records)) {
			return fail(number, fmt.Errorf("there is no line %d to undo", r.Line))
		}
		if r.Op == opPersisted {
			for i := range records {
				records[i].Persisted = true
			}
		}
		records = append(records, r)
	}
	return h, records, nil
}

// activeRecords returns the records that are in effect, oldest first.
func activeRecords(records []record) []record {
	undone := map[int]bool{}
	for _, r := range records {
		if r.Op == opUndone {
			undone[r.Line] = true
		}
	}
	var rest []record
	for i, r := range records {
		if r.Op != opUndone && r.Op != opPersisted && !undone[i+1] {
			rest = append(rest, r)
		}
	}
	return rest
}

// changeLog is the open, locked journal of this machine and namespace.
type changeLog struct {
	path    string
	dir     *os.File // locked
	header  header
	records []record
	// torn means that the file may end with a line that is incomplete or not in records. The next record replaces the
	// file.
	torn bool
	// Notes name the dropped lines, with the reason.
	Notes []string
}

// openJournal locks the directory and reads the journal. Errors: ErrBusy,
// ErrJournal, ErrElsewhere.
func openJournal(t setting.Tree, state string, role Role, f *Facts) (*changeLog, error) {
	j := &changeLog{header: header{Format: journalFormat, Version: journalVersion, Machine: f.machine,
		Place: journal.Place{Boot: f.boot}, Role: role, Started: time.Now().UTC()}}
	name := "host.jsonl"
	if t.Root == "" {
		ns, err := namespace.Current()
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		if j.header.Place, err = j.header.In(ns); err != nil {
			return nil, err
		}
	}
	if f.Namespace {
		name = fmt.Sprintf("netns-%d.jsonl", j.header.Namespace)
	}
	dir := t.Path(state)
	j.path = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the journal's directory (root may): %w", err)
	}
	if err := j.lock(dir); err != nil {
		return nil, err
	}
	if err := j.load(); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

// lock locks the directory. The lock ends with the process and leaves no file.
func (j *changeLog) lock(dir string) (err error) {
	if j.dir, err = os.Open(dir); err != nil {
		return fmt.Errorf("open the journal's directory: %w", err)
	}
	if err := unix.Flock(int(j.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		j.dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%w: %s is locked: wait until it has ended", ErrBusy, dir)
		}
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	return nil
}

// load reads the journal, and drops lines that no longer apply.
func (j *changeLog) load() error {
	data, err := journal.Read(j.path, ErrJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", j.path, err)
	}
	if len(data) == 0 {
		// Killed before the first line was on disk: nothing was changed.
		return nil
	}
	h, records, err := decodeJournal(data)
	if err != nil {
		return fmt.Errorf("read %s: %w: look at it, put back by hand what it lists, and remove it", j.path, err)
	}
	switch {
	case h.Machine != j.header.Machine:
		return fmt.Errorf("%s: %w (%s, and this is %s): look at it, and remove it if it came with a copied disk",
			j.path, ErrElsewhere, h.Machine, j.header.Machine)
	case h.Boot != j.header.Boot:
		before := activeRecords(records)
		j.records = slices.DeleteFunc(before, func(r record) bool {
			return r.Op != opFile && (!r.Persisted || r.untilReboot())
		})
		if gone := len(activeRecords(records)) - len(j.records); gone > 0 {
			j.note("%d changes of an earlier boot are forgotten: the reboot took them back", gone)
		}
	case h.Namespace != j.header.Namespace || h.Cookie != j.header.Cookie:
		j.note("the changes of a network namespace that is gone are forgotten")
	default:
		j.header, j.records = h, records
		j.torn = !bytes.HasSuffix(data, []byte("\n"))
		return nil
	}
	return j.rewrite(j.records)
}

func (j *changeLog) note(format string, args ...any) {
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// add writes a record to disk. Its change may be made only after that. It returns the record's line.
func (j *changeLog) add(r record) (line int, err error) {
	_, err = os.Stat(j.path)
	if errors.Is(err, fs.ErrNotExist) || j.torn || len(j.records) == 0 {
		// The first line and the first change are written as one file.
		err = j.rewrite(append(slices.Clone(j.records), r))
	} else {
		err = j.append(r)
	}
	j.torn = err != nil
	if err != nil {
		return 0, err
	}
	return len(j.records), nil
}

// append adds a record to the file. If it fails, the file may have the line, a part of it, or nothing.
func (j *changeLog) append(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err == nil {
		_, err = file.Write(append(text, '\n'))
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		return fmt.Errorf("write the journal %s: %w", j.path, err)
	}
	j.records = append(j.records, r)
	return nil
}

// rewrite replaces the journal by one with the records. Without records it removes the journal.
func (j *changeLog) rewrite(records []record) error {
	if len(records) == 0 {
		j.records = nil
		err := os.Remove(j.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	err := encoder.Encode(j.header)
	for _, r := range records {
		err = errors.Join(err, encoder.Encode(r))
	}
	if err == nil {
		err = journal.ReplaceOnDisk(j.path, text.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the journal %s: %w", j.path, err)
	}
	j.records = records
	return nil
}

// close unlocks the journal. If there is no journal, it also removes the directories that were made for it.
func (j *changeLog) close() {
	if len(j.records) == 0 {
		removeDirs(filepath.Dir(j.path))
	}
	j.dir.Close()
}

// removeDirs removes the directories at the end of StateDir, if they are empty. A directory that the user named stays.
func removeDirs(dir string) {
	for _, name := range []string{"tune", "jeoul"} {
		if filepath.Base(dir) != name || os.Remove(dir) != nil {
			return
		}
		dir = filepath.Dir(dir)
	}
}
