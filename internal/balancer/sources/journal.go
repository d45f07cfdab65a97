// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// journaled is the suffix of the file that has the differences of a fragment since its own file was written.
const journaled = ".journal"

// leastJournal is the size in bytes to which the journal of a small fragment may grow; that of a larger one may grow to
// the fragment's size. So a difference costs at most twice its size, and a start at most twice the time.
const leastJournal = 64 << 10

// entry is a difference in a journal, a line of JSON. Before it on the line stand whether it came to be in force, and
// the SHA-256 of the rest of the line.
type entry struct {
	Generation uint64       `json:"generation"`
	At         time.Time    `json:"at"`
	By         string       `json:"by"`
	Put        []entryBlock `json:"put,omitempty"`
	Removed    []string     `json:"removed,omitempty"`
}

// entryBlock is a service and its text.
type entryBlock struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// The first byte of a line reports whether its difference was only written, or came to be in force.
const (
	entryWritten  = '?'
	entryAccepted = '='
)

// pendingFile is a file, or a part of one, that the next start ignores until it is committed.
type pendingFile interface {
	// commit makes the next start read it.
	commit() error
	discard()
}

// record writes a difference to the journal of its fragment, or, if that is full, the complete fragment.
func (s *store) record(a amended) (pendingFile, error) {
	line, err := encodeEntry(a)
	if err != nil {
		return nil, err
	}
	length, known := s.journals[a.made.Name]
	if !known || length+int64(len(line)) > max(leastJournal, a.size()) {
		return s.write(a.whole())
	}
	if err := s.lock(); err != nil {
		return nil, err
	}
	w := &appended{store: s, name: a.made.Name, path: filepath.Join(s.dir, a.made.Name+journaled), at: length,
		size: int64(len(line))}
	file, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	err = file.Truncate(length) // removes uncommitted records
	if err == nil {
		_, err = file.WriteAt(line, length)
	}
	if err = errors.Join(err, file.Sync()); err != nil {
		w.discard()
		return nil, err
	}
	if length == 0 {
		err = syncDir(s.dir)
	}
	return w, err
}

// encodeEntry returns the line of a difference.
func encodeEntry(a amended) ([]byte, error) {
	e := entry{Generation: a.made.Generation, At: a.made.At, By: a.made.By, Removed: a.removed}
	for _, b := range a.put {
		e.Put = append(e.Put, entryBlock{b.name, string(b.text)})
	}
	text, err := json.Marshal(e)
	sum := sha256.Sum256(text)
	return fmt.Appendf(nil, "%c %s %s\n", entryWritten, hex.EncodeToString(sum[:]), text), err
}

// appended is a difference that was written into a journal.
type appended struct {
	store      *store
	name, path string
	at, size   int64
}

// commit overwrites one byte of the record, which needs no further room on the disk.
func (w *appended) commit() error {
	file, err := os.OpenFile(w.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{entryAccepted}, w.at); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	w.store.journals[w.name] = w.at + w.size
	return nil
}

func (w *appended) discard() { _ = os.Truncate(w.path, w.at) }

// replay returns a fragment after the changes in its journal. Records from before the fragment was written are skipped,
// and so are changes that did not come into force.
func (s *store) replay(f Fragment) (Fragment, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, f.Name+journaled))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("read the configuration set by the API: %w", err)
	}
	var entries []entry
	length := int64(0)
	for line := range bytes.Lines(data) {
		e, ok := decodeEntry(line)
		if !ok || e.Generation != f.Generation+uint64(len(entries))+1 {
			break
		}
		entries, length = append(entries, e), length+int64(len(line))
	}
	s.noteJournal(f.Name, length)
	return f.with(entries)
}

// noteJournal records the committed length of a fragment's journal.
func (s *store) noteJournal(name string, length int64) {
	if s.journals == nil {
		s.journals = map[string]int64{}
	}
	s.journals[name] = length
}

// decodeEntry decodes a committed line.
func decodeEntry(line []byte) (e entry, ok bool) {
	state, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	sum, text, _ := bytes.Cut(rest, []byte(" "))
	is := sha256.Sum256(text)
	if string(state) != string(rune(entryAccepted)) || string(sum) != hex.EncodeToString(is[:]) {
		return e, false
	}
	return e, json.Unmarshal(text, &e) == nil
}

// with returns a fragment that was changed by differences one after the other.
func (f Fragment) with(entries []entry) (Fragment, error) {
	if len(entries) == 0 {
		return f, nil
	}
	blocks, err := blocksOf(f.Text)
	if err != nil {
		return f, err
	}
	for _, e := range entries {
		blocks = e.apply(blocks)
		f.Generation, f.At, f.By = e.Generation, e.At, e.By
	}
	f.Text = textOf(blocks)
	return f, nil
}

// apply puts services in the places that config.Amend gives them.
func (e entry) apply(blocks []block) []block {
	put, gone := make(map[string]block, len(e.Put)), make(map[string]bool, len(e.Removed))
	for _, b := range e.Put {
		put[b.Name] = block{b.Name, []byte(b.Text)}
	}
	for _, name := range e.Removed {
		gone[name] = true
	}
	return config.ReplaceByName(blocks, func(b *block) string { return b.name }, put, gone)
}
