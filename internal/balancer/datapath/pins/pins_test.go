// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// pinnedMap is a map, which may refuse to be pinned.
type pinnedMap struct {
	*ebpf.Map
	refuses error
}

func (p pinnedMap) PinCopy(path string) error {
	if p.refuses != nil {
		return p.refuses
	}
	again, err := p.Clone()
	if err != nil {
		return err
	}
	return errors.Join(again.Pin(path), again.Close())
}

func newMap(t *testing.T) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func opened(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, "run-eth0.1-7")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	testenv.Root(t)
	dir, m := t.TempDir(), newMap(t)
	if _, err := Find(dir, "run-eth0.1-7"); !errors.Is(err, ErrNothing) {
		t.Errorf("where there is nothing: %v", err)
	}
	s := opened(t, dir)
	defer func() { _ = s.Remove() }()
	if _, err := Open(dir, "run-eth0.1-7"); !errors.Is(err, ErrBusy) {
		t.Errorf("a second time: %v", err)
	}
	for _, number := range []uint64{2, 10} {
		if err := s.Put(number, map[string]Pinner{"one": pinnedMap{Map: m}, "two": pinnedMap{Map: m}}); err != nil {
			t.Fatal(err)
		}
	}
	refusal := errors.New("refused")
	if err := s.Put(11,
		map[string]Pinner{"one": pinnedMap{Map: m}, "two": pinnedMap{refuses: refusal}}); !errors.Is(err, refusal) {
		t.Errorf("one that refuses: %v", err)
	}
	if sets, err := s.Sets(); err != nil || !slices.Equal(sets, []uint64{2, 10}) {
		t.Errorf("sets: %v, %v", sets, err)
	}
	if err := (pinnedMap{Map: m}).PinCopy(s.Path("", "link-0")); err != nil {
		t.Fatal(err)
	}
	if links, err := s.Links(); err != nil || !slices.Equal(links, []string{"link-0"}) {
		t.Errorf("links: %v, %v", links, err)
	}
	if err := s.KeepOnly(10); err != nil {
		t.Error(err)
	}
	s.Close()

	s, err := Find(dir, "run-eth0.1-7")
	if err != nil {
		t.Fatal(err)
	}
	if sets, err := s.Sets(); err != nil || !slices.Equal(sets, []uint64{10}) {
		t.Errorf("sets after the others were removed: %v, %v", sets, err)
	}
	other, err := Open(dir, "run-eth1-7")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other.Dir()); err != nil {
		t.Errorf("another's directory went, too: %v", err)
	}
	if err := other.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("there is left: %v, %v", left, err)
	}
}

// TestKeepOfAKilled removes the sets that a killed process was about to remove: no set under its own name is
// incomplete.
func TestKeepOfAKilled(t *testing.T) {
	testenv.Root(t)
	m := newMap(t)
	s := opened(t, t.TempDir())
	defer func() { _ = s.Remove() }()
	for _, number := range []uint64{2, 3, 4} {
		if err := s.Put(number, map[string]Pinner{"one": pinnedMap{Map: m}}); err != nil {
			t.Fatal(err)
		}
	}
	// A killed process left this directory under the name that set 3 is renamed to for its removal.
	if err := os.Rename(s.Path("", Set(2)), s.Path("", Set(3)+partialSuffix)); err != nil {
		t.Fatal(err)
	}
	if sets, err := s.Sets(); err != nil || !slices.Equal(sets, []uint64{3, 4}) {
		t.Errorf("sets: %v, %v", sets, err)
	}
	if err := s.KeepOnly(4); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(s.Dir()); err != nil || len(left) != 1 {
		t.Errorf("there is left: %v, %v", left, err)
	}
}

// TestStoreWithoutPlace has a state directory in which nothing can be mounted.
func TestStoreWithoutPlace(t *testing.T) {
	testenv.Root(t)
	if isBPF(system) {
		t.Skip("this host has a bpf file system of its own")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, "run-eth0-7"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("in a file: %v", err)
	}
}

// TestOpenAmongReaders: a start takes the lock from between those that only look.
func TestOpenAmongReaders(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	// Something is pinned, and has no process.
	s := opened(t, dir)
	if err := s.Put(1, map[string]Pinner{"map": pinnedMap{Map: newMap(t)}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	reader, err := Find(dir, "run-eth0.1-7")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		// The start tries without success at first.
		time.AfterFunc(3*pause, reader.Close)
		s, err = Open(dir, "run-eth0.1-7")
	})
	if err != nil {
		t.Fatalf("a start beside one that looks: %v", err)
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
}

// TestTidy: a process was killed after it had removed its directory, and before it removed the one above.
func TestTidy(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	s := opened(t, dir)
	root := filepath.Dir(s.Dir())
	if err := RemoveEmptyRoots(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Dir()); err != nil {
		t.Fatalf("with a balancer's directory: %v", err)
	}
	s.Close()
	if err := os.Remove(s.Dir()); err != nil {
		t.Fatal(err)
	}
	// Other tests' balancers may make it again at any time, for a directory of theirs.
	for late := time.Now().Add(10 * time.Second); ; {
		if err := RemoveEmptyRoots(dir); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s is empty, and is left", root)
		}
	}
}
