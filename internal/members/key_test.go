// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestKeyFiles: what is no key, and what others can read, is refused.
func TestKeyFiles(t *testing.T) {
	key := NewKey()
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		ok   bool
	}{
		"fresh":           {key.String() + "\n", 0o600, true},
		"of 16 bytes":     {Key(make([]byte, 16)).String(), 0o640, true},
		"others can read": {key.String(), 0o644, false},
		"of 20 bytes":     {Key(make([]byte, 20)).String(), 0o600, false},
		"empty":           {"", 0o600, false},
		"no base64":       {"secret secret", 0o600, false},
		"too long":        {string(bytes.Repeat([]byte("A"), 4096)), 0o600, false},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(test.text), test.mode); err != nil {
			t.Fatal(err)
		}
		read, err := ReadKey(path)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "fresh" && !bytes.Equal(read, key) {
			t.Error("it is another key in the file")
		}
	}
}

// TestDerivedKeys: for each purpose another, which is the same at each member.
func TestDerivedKeys(t *testing.T) {
	key := NewKey()
	one, err := key.Derive("one")
	if err != nil || len(one) != 32 {
		t.Fatal(one, err)
	}
	again, _ := Key(bytes.Clone(key)).Derive("one")
	other, _ := key.Derive("other")
	if !bytes.Equal(one, again) || bytes.Equal(one, other) || bytes.Equal(one, key) {
		t.Error("keys for purposes are not what they must be")
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte(NewKey().String()))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := ParseKey(text); err == nil {
			if again, err := ParseKey([]byte(key.String())); err != nil || !bytes.Equal(key, again) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
