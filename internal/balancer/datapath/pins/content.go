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

// A bpf file system is kernel memory, without disk quotas and without files of other programs. So content that cannot
// be written to a file is kept in a pinned map, which lasts as long as the pinned data plane.

// contentPrefix is the prefix of the name of a pinned content.
const contentPrefix = "content-"

// chunk is the size of an element of such a map, in bytes: a system call cannot read one large element.
const chunk = 32 << 10

// lengthBytes is the size of the length before the content, in the machine's byte order.
const lengthBytes = 8

// Store pins a content under a name, and atomically replaces the previous one.
func (s *Store) Store(name string, data []byte) error {
	content := append(binary.NativeEndian.AppendUint64(nil, uint64(len(data))), data...)
	elements := (len(content) + chunk - 1) / chunk
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "jeoul_content", Type: ebpf.Array,
		KeySize: 4, ValueSize: chunk, MaxEntries: uint32(elements)})
	if err != nil {
		return fmt.Errorf("making a map for %s: %w", name, err)
	}
	defer m.Close()
	element := make([]byte, chunk)
	for i := range uint32(elements) {
		clear(element)
		copy(element, content[int(i)*chunk:])
		if err := m.Put(i, element); err != nil {
			return fmt.Errorf("filling a map with %s: %w", name, err)
		}
	}
	partial := s.content(name) + partialSuffix
	err = removeFile(partial)
	if err == nil {
		err = m.Pin(partial)
	}
	if err == nil {
		err = os.Rename(partial, s.content(name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pinning %s in %s: %w", name, s.dir, err), removeFile(partial))
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
	content := make([]byte, 0, int(m.MaxEntries())*chunk)
	element := make([]byte, chunk)
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, &element); err != nil {
			return nil, fmt.Errorf("reading %s in %s: %w", name, s.dir, err)
		}
		content = append(content, element...)
	}
	length := binary.NativeEndian.Uint64(content)
	if length > uint64(len(content)-lengthBytes) {
		return nil, fmt.Errorf("reading %s in %s: it has %d bytes, and says %d", name, s.dir,
			len(content)-lengthBytes, length)
	}
	return content[lengthBytes : lengthBytes+length], nil
}

// Drop removes the content of a name, if it is there.
func (s *Store) Drop(name string) error { return removeFile(s.content(name)) }

// Contents lists the names of the pinned contents.
func (s *Store) Contents() (names []string, err error) {
	all, err := s.names()
	for _, n := range all {
		if name, ok := strings.CutPrefix(n, contentPrefix); ok && !strings.HasSuffix(n, partialSuffix) {
			names = append(names, strings.ReplaceAll(name, "@", "."))
		}
	}
	return names, err
}

// content returns the path of a content.
func (s *Store) content(key string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return filepath.Join(s.dir, contentPrefix+name(key))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
