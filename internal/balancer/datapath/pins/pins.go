// SPDX-License-Identifier: Apache-2.0

// Package pins makes eBPF objects outlive their process: it pins them on a bpf file system, in a directory for each
// balancer. It does not know the objects' kinds.
//
// A set of objects is a directory, which is filled under another name and then renamed, so that it is complete or
// absent. Links are beside the sets, and stay while anything is attached. An advisory lock on the balancer's directory,
// which the kernel releases with the process, excludes other processes.
package pins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Errors that a caller may test for.
var (
	// ErrBusy: another process has locked the balancer's directory.
	ErrBusy = errors.New("another process keeps this data plane")
	// ErrUnavailable: there is no writable bpf file system.
	ErrUnavailable = errors.New("no bpf file system that can be written to")
	// ErrNothing: nothing is pinned for this balancer.
	ErrNothing = errors.New("nothing is pinned")
)

// system is the usual mount point of a bpf file system, where systemd mounts it.
const system = "/sys/fs/bpf"

// balancersDir is the directory of balancers in it.
const balancersDir = "jeoul"

// Store is a balancer's directory, and the lock on it.
type Store struct {
	// stateDir and instance are the arguments of Open.
	stateDir, instance string
	dir                string
	lock               *os.File
	// mu guards dir against Renew, for methods that others than the data plane call.
	mu sync.RWMutex
}

// Pinner is an object that can be pinned, by a copy of its handle, since the library moves the pin of an object that is
// pinned again.
type Pinner interface {
	// PinCopy pins the object under a path, in addition to pins that it has.
	PinCopy(path string) error
}

// lockTimeout bounds how long Open waits for the lock: `jeoul status`, or a start in another network namespace, holds
// it briefly while it checks whether there is a process.
const (
	lockTimeout = 2 * time.Second
	pause       = 20 * time.Millisecond
)

// Open creates and locks the directory of an instance, on the host's bpf file system or, if that is missing or not
// writable, on one that it mounts in stateDir. Errors: ErrBusy, ErrUnavailable.
func Open(stateDir, instance string) (*Store, error) {
	for start := time.Now(); ; <-time.After(pause) {
		s, err := open(stateDir, instance)
		if err == nil {
			s.stateDir, s.instance = stateDir, instance
		}
		if !errors.Is(err, ErrBusy) || time.Since(start) > lockTimeout {
			return s, err
		}
	}
}

// Renew opens the store again if its directory is no longer at its path, because its bpf file system was unmounted, or
// another one mounted over it. Then the store is empty, and Renew returns true. The store must have been opened by
// Open. Errors are those of Open; after an error the store is unchanged.
func (s *Store) Renew() (bool, error) {
	if now, err := os.Lstat(s.dir); err == nil {
		if held, err := s.lock.Stat(); err == nil && os.SameFile(held, now) {
			return false, nil
		}
	}
	reopened, err := Open(s.stateDir, s.instance)
	if err != nil {
		return false, err
	}
	// Pins of an earlier mount are obsolete.
	if err := reopened.Clear(); err != nil {
		reopened.Close()
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock.Close()
	s.dir, s.lock = reopened.dir, reopened.lock
	return true, nil
}

func open(stateDir, instance string) (*Store, error) {
	s, err := Find(stateDir, instance)
	if !errors.Is(err, ErrNothing) {
		return s, err
	}
	root, err := writable(stateDir)
	if err != nil {
		return nil, err
	}
	return lock(filepath.Join(root, name(instance)), true)
}

// Find locks an existing directory, without waiting. Errors: ErrNothing, ErrBusy.
func Find(stateDir, instance string) (*Store, error) {
	for _, root := range roots(stateDir) {
		if !isBPF(root) {
			continue
		}
		s, err := lock(filepath.Join(root, name(instance)), false)
		if !errors.Is(err, ErrNothing) {
			return s, err
		}
	}
	return nil, ErrNothing
}

// Instances lists the instances with pins, with or without a process.
func Instances(stateDir string) (names []string) {
	for _, root := range roots(stateDir) {
		entries, _ := os.ReadDir(root)
		for _, e := range entries {
			if e.IsDir() && isBPF(root) {
				names = append(names, strings.ReplaceAll(e.Name(), "@", "."))
			}
		}
	}
	return names
}

// roots returns the possible parents of balancers' directories.
func roots(stateDir string) []string {
	return []string{filepath.Join(system, balancersDir), filepath.Join(mountPoint(stateDir), balancersDir)}
}

// name escapes a name for a bpf file system, which allows no dots.
func name(instance string) string { return strings.ReplaceAll(instance, ".", "@") }

// lock locks a directory, which it creates first if create is set.
func lock(dir string, create bool) (*Store, error) {
	// A process that closes a store removes its directory, perhaps between our open and our lock.
	for range 100 {
		if create {
			err := os.MkdirAll(dir, 0o700)
			if errors.Is(err, fs.ErrNotExist) {
				continue // the directory above was removed meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("making %s: %w: %v", dir, ErrUnavailable, err)
			}
		}
		file, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) && create {
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrNothing
		}
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", dir, err)
		}
		current, err := lockFile(file)
		if current && err == nil {
			return &Store{dir: dir, lock: file}, nil
		}
		file.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("locking %s: other processes keep replacing it", dir)
}

// lockFile locks an open directory and reports whether it is still the one at its path.
func lockFile(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, fmt.Errorf("%s: %w: stop it first", file.Name(), ErrBusy)
	}
	if err != nil {
		return false, fmt.Errorf("locking %s: %w", file.Name(), err)
	}
	held, err := file.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(file.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, now), err
}

// Dir returns the directory of the pins.
func (s *Store) Dir() string { return s.dir }

// Path returns the path of an object in a set or, for an empty name of the set, of a link.
func (s *Store) Path(set, object string) string { return filepath.Join(s.dir, set, object) }

// partialSuffix is the suffix of a set that is being created or removed.
const partialSuffix = "-new"

// setPrefix is the prefix of the name of a set.
const setPrefix = "set-"

// Put pins a set of objects under a number, atomically.
func (s *Store) Put(number uint64, objects map[string]Pinner) error {
	set := Set(number)
	partial := filepath.Join(s.dir, set+partialSuffix)
	err := errors.Join(removeTree(partial), os.Mkdir(partial, 0o700))
	for object, pinner := range objects {
		if err != nil {
			break
		}
		err = pinner.PinCopy(filepath.Join(partial, object))
	}
	if err == nil {
		err = os.Rename(partial, filepath.Join(s.dir, set))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pinning the data plane in %s: %w", s.dir, err), removeTree(partial))
	}
	return nil
}

// Set returns the name of the set with a number.
func Set(number uint64) string { return setPrefix + strconv.FormatUint(number, 10) }

// Sets lists the numbers of the complete sets in ascending order.
func (s *Store) Sets() ([]uint64, error) {
	names, err := s.names()
	var numbers []uint64
	for _, n := range names {
		digits, ok := strings.CutPrefix(n, setPrefix)
		if number, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// Objects lists the names of a set's objects.
func (s *Store) Objects(number uint64) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, Set(number)))
	if err != nil {
		return nil, fmt.Errorf("reading the pins of the data plane: %w", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Links lists the names of the pins beside the sets.
func (s *Store) Links() ([]string, error) {
	names, err := s.names()
	return slices.DeleteFunc(names, func(n string) bool {
		return strings.HasPrefix(n, setPrefix) || strings.HasPrefix(n, contentPrefix)
	}), err
}

func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.dir, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// KeepOnly removes all sets but one, and partial sets.
func (s *Store) KeepOnly(number uint64) error {
	names, err := s.names()
	for _, n := range names {
		if strings.HasPrefix(n, setPrefix) && n != Set(number) {
			err = errors.Join(err, removeSet(filepath.Join(s.dir, n)))
		}
	}
	return err
}

// removeSet removes a set, or a partial one. It renames the set first, so that a set under its own name is complete,
// even if the process is killed meanwhile.
func removeSet(dir string) error {
	if strings.HasSuffix(dir, partialSuffix) {
		return removeTree(dir)
	}
	partial := dir + partialSuffix
	if err := errors.Join(removeTree(partial), os.Rename(dir, partial)); err != nil {
		return err
	}
	return removeTree(partial)
}

// Remove removes all pins, releases the lock, and unmounts the file system if Open has mounted it and no directory of a
// balancer is left.
func (s *Store) Remove() error {
	err := removeTree(s.dir)
	s.Close()
	if err = errors.Join(err, removeRoot(filepath.Dir(s.dir))); err != nil {
		return fmt.Errorf("removing the pins in %s: %w", s.dir, err)
	}
	return nil
}

// RemoveEmptyRoots removes the parents of balancers' directories if they are empty: a process that is killed after it
// has removed its own directory leaves them.
func RemoveEmptyRoots(stateDir string) (err error) {
	for _, root := range roots(stateDir) {
		if isBPF(root) {
			err = errors.Join(err, removeRoot(root))
		}
	}
	return err
}

// removeRoot removes a parent of balancers' directories if it is empty, and unmounts the file system that was mounted
// for it.
func removeRoot(root string) error {
	on := filepath.Dir(root)
	if os.Remove(root) != nil || on == system {
		return nil
	}
	return unmount(on)
}

// Clear removes all pins but contents, which detaches pinned links, and keeps the lock. A content may be needed without
// them: it may list changes to the host that are to be undone.
func (s *Store) Clear() error {
	names, err := s.names()
	for _, n := range names {
		path := filepath.Join(s.dir, n)
		switch {
		case strings.HasPrefix(n, contentPrefix):
		case strings.HasPrefix(n, setPrefix):
			err = errors.Join(err, removeSet(path))
		default:
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// Abandon is Close, but removes the directory if nothing is pinned.
func (s *Store) Abandon() error {
	names, err := s.names()
	if err == nil && len(names) == 0 {
		return s.Remove()
	}
	s.Close()
	return err
}

// Close releases the lock, and keeps the pins.
func (s *Store) Close() { s.lock.Close() }

// removeTree removes a directory with pins, if it exists: os.RemoveAll opens the files, which fails for pins.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = errors.Join(err, removeTree(path))
		} else {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return errors.Join(err, os.Remove(dir))
}
