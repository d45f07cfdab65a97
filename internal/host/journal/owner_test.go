// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jeoul/jeoul/internal/host/journal"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestReadOfAService: root reads the journal of a service's user only if the directory belongs to that user alone, as
// systemd makes it.
func TestReadOfAService(t *testing.T) {
	testenv.Root(t)
	const user, other = 65534, 65533
	damaged := errors.New("damaged")
	for _, test := range []struct {
		name  string
		owner int
		mode  os.FileMode
		want  error
	}{
		{"its directory", user, 0o750, nil},
		{"root's directory", 0, 0o755, damaged},
		{"another user's directory", other, 0o755, damaged},
		{"its directory, which others can write to", user, 0o777, damaged},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "run-eth0-1.journal")
			if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chown(path, user, user),
				os.Chown(dir, test.owner, 0), os.Chmod(dir, test.mode)); err != nil {
				t.Fatal(err)
			}
			if _, err := journal.Read(path, damaged); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
