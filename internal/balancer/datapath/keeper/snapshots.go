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

// A snapshot is a file with its number in the name. Two files alternate: the previous one becomes the reserve, with
// room for the next snapshot, so that it can be written even if others fill the file system meanwhile. If the file
// cannot be written, the snapshot is pinned like the data plane itself; if that fails, too, changes are made without a
// snapshot, and no snapshot has the number in the generation's memory: then the next process uses the newest one, as a
// stale one.

// snapshotSubject names the snapshot in messages about its faults.
const snapshotSubject = "the snapshot of the data plane"

const (
	// reserveSuffix is the suffix of the file for the next snapshot.
	reserveSuffix = ".reserve"
	// MinReserve is the least room, in bytes, that is reserved beyond the length of the last snapshot; a quarter of
	// that length is if it is more.
	MinReserve = 16 << 10
)

// File returns the path of a snapshot.
func (k *Keeper) File(number uint64) string {
	return k.Snapshot + "." + strconv.FormatUint(number, 10)
}

// pinnedSnapshot is the prefix of the names of pinned snapshots.
const pinnedSnapshot = "snapshot."

func pinnedName(number uint64) string { return pinnedSnapshot + strconv.FormatUint(number, 10) }

// Write writes a snapshot to a file, or pins it; a failure of both is recorded.
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

// RetryWrites retries failed writes: it writes the last snapshot to its file, if there is at most a pinned copy, and
// reserves room for the next one.
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

// writeFile writes a snapshot's file, atomically.
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
		// The old content may be longer. Truncating frees reserved room beyond the end, too.
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

// reserve allocates room for the next snapshot's file in advance. A failure is ignored: there may be room by then.
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

// load returns a snapshot's bytes, from its file or its pinned copy.
func (k *Keeper) load(number uint64) ([]byte, error) {
	data, err := os.ReadFile(k.File(number))
	if err != nil && k.Store != nil {
		if pinned, failed := k.Store.Load(pinnedName(number)); failed == nil {
			return pinned, nil
		}
	}
	return data, err
}

// Decode reads a snapshot from its file, or from the pinned copy if the file is missing or damaged.
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

// Newest returns the snapshot of a number, or the newest one before it if that is missing, because it could not be
// written. A snapshot that exists and cannot be read is an error: an older one would lack changes.
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

// Sweep removes all snapshots but one, and keeps the room of a file for the next one.
func (k *Keeper) Sweep(but uint64) {
	fsys := k.Files.FileSystem()
	for _, n := range k.SnapshotFiles() {
		if n == but {
			continue
		}
		// Its room becomes the reserve, however full the file system is.
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
		// The directory may be unreadable.
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

// numbersAfter returns the numbers in names that consist of a prefix and a number.
func numbersAfter(prefix string, names []string) (numbers []uint64) {
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, prefix)
		if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
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

// Latest returns the greatest number of any snapshot, at least the given one, so that the snapshot of a failed change
// is not overwritten.
func (k *Keeper) Latest(number uint64) uint64 {
	numbers, _ := k.Snapshots()
	return max(number, slices.Max(append(numbers, number)))
}
