// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestContents: a content comes back as it was kept, of whatever length, and is neither a link nor a set.
func TestContents(t *testing.T) {
	testenv.Root(t)
	s, err := Open(t.TempDir(), "content-test.1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Load("run.journal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a content that is not there: %v", err)
	}
	for _, size := range []int{0, 1, chunk - lengthBytes, chunk - lengthBytes + 1, 5 * chunk} {
		data := bytes.Repeat([]byte{0xa5, 0x5a, 1}, size/3+1)[:size]
		if err := s.Store("run.journal", data); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load("run.journal"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("of %d bytes %d came back: %v", size, len(got), err)
		}
	}
	if err := s.Clear(); err != nil {
		t.Error(err)
	}
	names, err := s.Contents()
	links, failed := s.Links()
	if err := errors.Join(err, failed); err != nil || !slices.Equal(names, []string{"run.journal"}) || len(links) != 0 {
		t.Errorf("contents are %q, links %q: %v", names, links, err)
	}
	if err := errors.Join(s.Drop("run.journal"), s.Drop("run.journal")); err != nil {
		t.Error(err)
	}
	if names, err := s.Contents(); err != nil || len(names) != 0 {
		t.Errorf("there is left %q: %v", names, err)
	}
}
