// SPDX-License-Identifier: Apache-2.0

package keeper

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

// A snapshot is a file with its number in the name. Two take turns: the previous one becomes the reserve, with room for
// the next, so that the next can be written even where others fill the file system meanwhile. Where the file cannot be
// written, the snapshot is pinned as the data plane itself is; where that fails too, changes go on without one, and the
// number in the generation's memory is one that no snapshot has: then the next process uses the newest one, with care.

// snapshotSubject names the snapshot in messages about its faults.
const snapshotSubject = "the snapshot of the data plane"

const (
	// reserveSuffix ends the name of the file that the next snapshot is written into.
	reserveSuffix = ".reserve"
	// MinReserve is the least room that is reserved beyond the length of the last snapshot and a quarter of it, in
	// bytes.
	MinReserve = 16 << 10
)

// File returns the path of a snapshot.
func (k *Keeper) File(number uint64) string {
	return k.Snapshot + "." + strconv.FormatUint(number, 10)
}

// pinnedSnapshot begins the names of snapshots that are pinned.
const pinnedSnapshot = "snapshot."

func pinnedName(number uint64) string { return pinnedSnapshot + strconv.FormatUint(number, 10) }

// Write keeps a snapshot: as a file, pinned, or not at all.
func (k *Keeper) Write(number uint64, data snapshot.Parts) {
	k.Size = data.Size()
	err := k.writeFile(number, data)
	if err == nil {
		k.unwritten = nil
		k.Files.RecordResult(snapshotSubject, k.Snapshot, nil, false)
		return
	}
	k.unwritten, k.unwrittenNumber = data, number
	k.NoteWriteError(err, k.PinContent(pinnedName(number), data.Bytes()) == nil)
}

// NoteWriteError records that the present snapshot could not be written to its file.
func (k *Keeper) NoteWriteError(err error, pinned bool) {
	k.Files.RecordResult(snapshotSubject, k.Snapshot, err, pinned)
}

// RetryWrites retries writes that have failed: it writes the last snapshot to its file, if there is only a pinned copy,
// and reserves room for the next one.
func (k *Keeper) RetryWrites() {
	if k.unwritten != nil {
		k.Write(k.unwrittenNumber, k.unwritten)
		if k.unwritten != nil {
			return
		}
		_ = k.Store.Drop(pinnedName(k.unwrittenNumber))
	}
	k.reserve()
}

// revert makes a snapshot current again after a change that was not made.
func (k *Keeper) revert(number uint64) {
	if k.unwritten == nil || k.unwrittenNumber <= number {
		return
	}
	k.unwritten = nil
	if slices.Contains(k.SnapshotFiles(), number) {
		k.Files.RecordResult(snapshotSubject, k.Snapshot, nil, false)
		return
	}
	k.unwritten = nil
	if data, err := k.load(number); err == nil {
		k.unwritten = snapshot.Parts{data}
	}
	k.unwrittenNumber = number
}

// writeFile writes a snapshot's file, whole or not at all.
func (k *Keeper) writeFile(number uint64, data snapshot.Parts) error {
	fsys, reserve := k.Files.FileSystem(), k.Snapshot+reserveSuffix
	var file durable.File
	err := durable.InDirectory(fsys, reserve, func() (err error) {
		file, err = fsys.OpenFile(reserve, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	if _, err = data.WriteTo(file); err == nil {
		// Its old content may be longer. Truncating gives reserved room beyond the end back, too.
		err = file.Truncate(k.Size)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = fsys.Rename(reserve, k.File(number))
	}
	if err == nil {
		k.Reserved = 0
	}
	return err
}

// reserve allocates the room of the next snapshot's file now. Where there is none, the next snapshot may find some.
func (k *Keeper) reserve() {
	fsys, want := k.Files.FileSystem(), k.Size+max(k.Size/4, MinReserve)
	if k.Size == 0 || k.Reserved >= want {
		return
	}
	file, err := fsys.OpenFile(k.Snapshot+reserveSuffix, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	if errors.Join(file.Allocate(want), file.Close()) == nil {
		k.Reserved = want
	}
}

// load returns a snapshot's bytes, of its file or pinned.
func (k *Keeper) load(number uint64) ([]byte, error) {
	data, err := os.ReadFile(k.File(number))
	if err != nil && k.Store != nil {
		if pinned, failed := k.Store.Load(pinnedName(number)); failed == nil {
			return pinned, nil
		}
	}
	return data, err
}

// Decode reads a snapshot: its file, or where that is missing or damaged the pinned copy.
func (k *Keeper) Decode(number uint64) (*snapshot.Snapshot, error) {
	data, err := os.ReadFile(k.File(number))
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
		return nil, fmt.Errorf("its snapshot %s is missing: %w", k.File(number), fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.File(number), err)
	}
	if s.Number != number {
		return nil, fmt.Errorf("%s: %w: its number is %d", k.File(number), snapshot.ErrDamaged, s.Number)
	}
	return s, nil
}

// Newest returns the snapshot of a number; where it is missing, since it could be kept nowhere, the one before. A
// snapshot that is there and cannot be read is an error: an older one would lack changes that this one has.
func (k *Keeper) Newest(number uint64) (*snapshot.Snapshot, error) {
	s, err := k.Decode(number)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	numbers, failed := k.Snapshots()
	numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n > number })
	if failed != nil || len(numbers) == 0 {
		return nil, errors.Join(err, failed)
	}
	return k.Decode(slices.Max(numbers))
}

// successorNumber returns the number of the snapshot that the next process would restore.
func (k *Keeper) successorNumber(m *generation.Memory) uint64 {
	shown := m.Head().Snapshot
	numbers, _ := k.Snapshots()
	numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n > shown })
	return slices.Max(append(numbers, 0))
}

// Sweep removes all snapshots but one, and keeps a file's room for the next one.
func (k *Keeper) Sweep(but uint64) {
	fsys := k.Files.FileSystem()
	for _, n := range k.SnapshotFiles() {
		if n == but {
			continue
		}
		// From here on its room is the reserve, however full others have made the file system.
		_, err := fsys.Stat(k.Snapshot + reserveSuffix)
		if !errors.Is(err, fs.ErrNotExist) || fsys.Rename(k.File(n), k.Snapshot+reserveSuffix) != nil {
			_ = fsys.Remove(k.File(n))
		}
		k.Reserved = 0
	}
	for _, n := range k.Pinned() {
		if n != but {
			_ = k.Store.Drop(pinnedName(n))
		}
	}
}

// Snapshots lists the numbers of all snapshots, as files or pinned.
func (k *Keeper) Snapshots() (numbers []uint64, err error) {
	numbers = k.SnapshotFiles()
	for _, n := range k.Pinned() {
		if !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		// An unreadable directory is why there are none.
		_, err = os.Stat(filepath.Dir(k.Snapshot))
	}
	return numbers, err
}

// SnapshotFiles lists the numbers of the snapshots that are files.
func (k *Keeper) SnapshotFiles() []uint64 {
	entries, _ := os.ReadDir(filepath.Dir(k.Snapshot))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return numbersAfter(filepath.Base(k.Snapshot)+".", names)
}

// Pinned lists the numbers of the snapshots that are pinned.
func (k *Keeper) Pinned() []uint64 {
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

// removeSnapshots removes all snapshots, and the reserve.
func (k *Keeper) removeSnapshots() (err error) {
	for _, n := range k.SnapshotFiles() {
		err = errors.Join(err, removeFile(k.File(n)))
	}
	for _, n := range k.Pinned() {
		err = errors.Join(err, k.Store.Drop(pinnedName(n)))
	}
	return errors.Join(err, removeFile(k.Snapshot+reserveSuffix))
}

// Latest returns the greatest number of any snapshot, at least the one given: so the snapshot of a change that was not
// made is not overwritten.
func (k *Keeper) Latest(number uint64) uint64 {
	numbers, _ := k.Snapshots()
	return max(number, slices.Max(append(numbers, number)))
}
