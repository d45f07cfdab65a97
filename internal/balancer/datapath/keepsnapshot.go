// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// A snapshot is a file with its number in the name. Two take turns: the one before becomes the reserve, with room
// for the next, so that a file system that others fill meanwhile takes that all the same. Where the file cannot be
// written, the snapshot is pinned as the data plane itself is; where that fails too, changes go on without, and the
// number in packets' memory is one that no snapshot has: then the newest one is of use to a next process, with care.

// whatSnapshot is what a fault of the snapshot is about.
const whatSnapshot = "the snapshot of the data plane"

const (
	// reserveSuffix ends the name of the file that the next snapshot is written into.
	reserveSuffix = ".reserve"
	// reserveLeast is the least room that is reserved beyond the length of the last snapshot, in bytes; a quarter
	// of it is besides.
	reserveLeast = 16 << 10
)

// file returns the path of a snapshot.
func (k *keeper) file(number uint64) string {
	return k.Snapshot + "." + strconv.FormatUint(number, 10)
}

// pinnedSnapshot begins the names of snapshots that are pinned.
const pinnedSnapshot = "snapshot."

func pinnedName(number uint64) string { return pinnedSnapshot + strconv.FormatUint(number, 10) }

// write keeps a snapshot: as a file, pinned, or not at all.
func (k *keeper) write(number uint64, data []byte) {
	k.size = int64(len(data))
	err := k.writeFile(number, data)
	if err == nil {
		k.unwritten = nil
		k.Files.Note(whatSnapshot, k.Snapshot, nil, false)
		return
	}
	k.unwritten, k.unwrittenNumber = data, number
	k.fault(err, k.pinContent(pinnedName(number), data) == nil)
}

// fault notes that there is no file of the present snapshot.
func (k *keeper) fault(err error, pinned bool) { k.Files.Note(whatSnapshot, k.Snapshot, err, pinned) }

// writeAgain retries what the file system refused before: it writes the last snapshot to its file, if only the pinned
// copy has it, and reserves room for the next one.
func (k *keeper) writeAgain() {
	if k.unwritten != nil {
		k.write(k.unwrittenNumber, k.unwritten)
		if k.unwritten != nil {
			return
		}
		_ = k.Store.Drop(pinnedName(k.unwrittenNumber))
	}
	k.reserve()
}

// goBack takes a snapshot for the last one after a change that was not made.
func (k *keeper) goBack(number uint64) {
	if k.unwritten == nil || k.unwrittenNumber <= number {
		return
	}
	k.unwritten = nil
	if slices.Contains(k.files(), number) {
		k.Files.Note(whatSnapshot, k.Snapshot, nil, false)
		return
	}
	k.unwritten, _ = k.load(number)
	k.unwrittenNumber = number
}

// writeFile writes a snapshot's file, whole or not at all.
func (k *keeper) writeFile(number uint64, data []byte) error {
	fsys, reserve := k.Files.FileSystem(), k.Snapshot+reserveSuffix
	var file durable.File
	err := durable.InDirectory(fsys, reserve, func() (err error) {
		file, err = fsys.OpenFile(reserve, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	if _, err = file.Write(data); err == nil {
		// What it had before may be longer. Room beyond the end, which this gives back, belongs to the file from
		// here on.
		err = file.Truncate(int64(len(data)))
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = fsys.Rename(reserve, k.file(number))
	}
	if err == nil {
		k.reserved = 0
	}
	return err
}

// reserve has the file for the next snapshot take its room now. Where there is none, the next snapshot may find some.
func (k *keeper) reserve() {
	fsys, want := k.Files.FileSystem(), k.size+max(k.size/4, reserveLeast)
	if k.size == 0 || k.reserved >= want {
		return
	}
	file, err := fsys.OpenFile(k.Snapshot+reserveSuffix, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	if errors.Join(file.Allocate(want), file.Close()) == nil {
		k.reserved = want
	}
}

// load returns a snapshot's bytes, of its file or pinned.
func (k *keeper) load(number uint64) ([]byte, error) {
	data, err := os.ReadFile(k.file(number))
	if err != nil && k.Store != nil {
		if pinned, failed := k.Store.Load(pinnedName(number)); failed == nil {
			return pinned, nil
		}
	}
	return data, err
}

// decode reads a snapshot: its file, or where that is missing or damaged what is pinned.
func (k *keeper) decode(number uint64) (*snapshot.Snapshot, error) {
	data, err := os.ReadFile(k.file(number))
	var s *snapshot.Snapshot
	if err == nil {
		s, err = snapshot.Decode(data)
	}
	if err != nil && k.Store != nil {
		if pinned, failed := k.Store.Load(pinnedName(number)); failed == nil {
			s, err = snapshot.Decode(pinned)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("its snapshot %s is missing: %w", k.file(number), fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.file(number), err)
	}
	if s.Number != number {
		return nil, fmt.Errorf("%s: %w: its number is %d", k.file(number), snapshot.ErrDamaged, s.Number)
	}
	return s, nil
}

// newest returns the snapshot of a number; where there is none of it, for it could be kept nowhere, the one
// before. A snapshot that is there and cannot be read is an error: an older one would say less than is known.
func (k *keeper) newest(number uint64) (*snapshot.Snapshot, error) {
	s, err := k.decode(number)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	numbers, failed := k.snapshots()
	numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n > number })
	if failed != nil || len(numbers) == 0 {
		return nil, errors.Join(err, failed)
	}
	return k.decode(slices.Max(numbers))
}

// holding returns the number of the snapshot that a next process would go on with.
func (k *keeper) holding(m *generation.Memory) uint64 {
	shown := m.Head().Snapshot
	numbers, _ := k.snapshots()
	numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n > shown })
	return slices.Max(append(numbers, 0))
}

// sweep removes all snapshots but one, and keeps the room of a file for the next.
func (k *keeper) sweep(but uint64) {
	fsys := k.Files.FileSystem()
	for _, n := range k.files() {
		if n == but {
			continue
		}
		// Its room is the reserve from here on, whatever others have taken of the file system.
		_, err := fsys.Stat(k.Snapshot + reserveSuffix)
		if !errors.Is(err, fs.ErrNotExist) || fsys.Rename(k.file(n), k.Snapshot+reserveSuffix) != nil {
			_ = fsys.Remove(k.file(n))
		}
		k.reserved = 0
	}
	for _, n := range k.pinned() {
		if n != but {
			_ = k.Store.Drop(pinnedName(n))
		}
	}
}

// snapshots lists the numbers of those that there are, as files or pinned.
func (k *keeper) snapshots() (numbers []uint64, err error) {
	numbers = k.files()
	for _, n := range k.pinned() {
		if !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		// Why there are none, if there is a reason.
		_, err = os.Stat(filepath.Dir(k.Snapshot))
	}
	return numbers, err
}

// files lists the numbers of those that are files.
func (k *keeper) files() []uint64 {
	entries, _ := os.ReadDir(filepath.Dir(k.Snapshot))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return numbersAfter(filepath.Base(k.Snapshot)+".", names)
}

// pinned lists the numbers of those that are pinned.
func (k *keeper) pinned() []uint64 {
	if k.Store == nil {
		return nil
	}
	names, _ := k.Store.Contents()
	return numbersAfter(pinnedSnapshot, names)
}

// numbersAfter returns the numbers of names that are a prefix and a number.
func numbersAfter(prefix string, names []string) (numbers []uint64) {
	for _, name := range names {
		digits, is := strings.CutPrefix(name, prefix)
		if n, err := strconv.ParseUint(digits, 10, 64); is && err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// removeSnapshots removes all of them, and the reserve.
func (k *keeper) removeSnapshots() (err error) {
	for _, n := range k.files() {
		err = errors.Join(err, remove(k.file(n)))
	}
	for _, n := range k.pinned() {
		err = errors.Join(err, k.Store.Drop(pinnedName(n)))
	}
	return errors.Join(err, remove(k.Snapshot+reserveSuffix))
}

// latest returns the greatest number of a snapshot that there is, at least the one given: one
// of a change that was not made is not written over.
func (k *keeper) latest(number uint64) uint64 {
	numbers, _ := k.snapshots()
	return max(number, slices.Max(append(numbers, number)))
}
