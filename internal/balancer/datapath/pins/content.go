// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

// A bpf file system is memory of the kernel that no disk quota bounds and no other program fills. So content that
// cannot be written to a file is kept in a pinned map: the kernel keeps that for as long as it keeps the data plane.

// contentPrefix begins the name of a pinned content.
const contentPrefix = "content-"

// chunk is the size of an element of such a map, in bytes: a map of one large element cannot be read by a system
// call.
const chunk = 32 << 10

// lengthBytes is the size of the length that comes before the content, in the machine's byte order.
const lengthBytes = 8

// Store pins a content under a name, whole or not at all, and replaces the previous one.
func (s *Store) Store(name string, data []byte) error {
	whole := append(binary.NativeEndian.AppendUint64(nil, uint64(len(data))), data...)
	elements := (len(whole) + chunk - 1) / chunk
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "jeoul_content", Type: ebpf.Array,
		KeySize: 4, ValueSize: chunk, MaxEntries: uint32(elements)})
	if err != nil {
		return fmt.Errorf("making a map for %s: %w", name, err)
	}
	defer m.Close()
	element := make([]byte, chunk)
	for i := range uint32(elements) {
		clear(element)
		copy(element, whole[int(i)*chunk:])
		if err := m.Put(i, element); err != nil {
			return fmt.Errorf("filling a map with %s: %w", name, err)
		}
	}
	made := s.content(name) + partialSuffix
	err = removeFile(made)
	if err == nil {
		err = m.Pin(made)
	}
	if err == nil {
		err = os.Rename(made, s.content(name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pinning %s in %s: %w", name, s.dir, err), removeFile(made))
	}
	return nil
}

// Load returns the content of a name; fs.ErrNotExist where there is none.
func (s *Store) Load(name string) ([]byte, error) {
	m, err := ebpf.LoadPinnedMap(s.content(name), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("reading %s in %s: %w", name, s.dir, err)
	}
	defer m.Close()
	if m.ValueSize() != chunk {
		return nil, fmt.Errorf("reading %s in %s: its elements have %d bytes, not %d", name, s.dir,
			m.ValueSize(), chunk)
	}
	whole := make([]byte, 0, int(m.MaxEntries())*chunk)
	element := make([]byte, chunk)
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, &element); err != nil {
			return nil, fmt.Errorf("reading %s in %s: %w", name, s.dir, err)
		}
		whole = append(whole, element...)
	}
	length := binary.NativeEndian.Uint64(whole)
	if length > uint64(len(whole)-lengthBytes) {
		return nil, fmt.Errorf("reading %s in %s: it has %d bytes, and says %d", name, s.dir,
			len(whole)-lengthBytes, length)
	}
	return whole[lengthBytes : lengthBytes+length], nil
}

// Drop removes the content of a name, if it is there.
func (s *Store) Drop(name string) error { return removeFile(s.content(name)) }

// Contents lists the names of the pinned contents.
func (s *Store) Contents() (names []string, err error) {
	all, err := s.names()
	for _, n := range all {
		if name, is := strings.CutPrefix(n, contentPrefix); is && !strings.HasSuffix(n, partialSuffix) {
			names = append(names, strings.ReplaceAll(name, "@", "."))
		}
	}
	return names, err
}

// content returns the path of a content.
func (s *Store) content(of string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return filepath.Join(s.dir, contentPrefix+name(of))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
