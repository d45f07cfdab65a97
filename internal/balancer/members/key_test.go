// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
)

// TestKeyFiles: a file without a key, and one that others can read, is refused.
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
		"two":             {"# since May\n" + key.String() + "\n\n  " + NewKey().String(), 0o600, true},
		"one repeated":    {key.String() + "\n" + key.String(), 0o600, false},
		"a line between":  {key.String() + "\nsecret\n" + NewKey().String(), 0o600, false},
		"five": {strings.Join([]string{key.String(), NewKey().String(), NewKey().String(), NewKey().String(),
			NewKey().String()}, "\n"), 0o600, false},
		"only a comment": {"# none", 0o600, false},
		"too long":       {string(bytes.Repeat([]byte("A"), 4096)), 0o600, false},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(test.text), test.mode); err != nil {
			t.Fatal(err)
		}
		read, err := ReadKeys(path)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "fresh" && !bytes.Equal(read[0], key) {
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

// TestShownKeys: names of keys differ, are the same at each member, and have nothing of the keys.
func TestShownKeys(t *testing.T) {
	keys := Keys{NewKey(), make(Key, 16)}
	names := keys.fingerprints()
	if len(names) != 2 || names[0] == names[1] || !slices.Equal(names, keys.fingerprints()) || names[1] == "00000000" {
		t.Errorf("names %q", names)
	}
}

// TestReplaceKeys: from any keys to any others; those that memberlist reads meanwhile do not change.
func TestReplaceKeys(t *testing.T) {
	all := Keys{NewKey(), NewKey(), NewKey(), NewKey()}
	choose := func(indexes []int) (keys Keys) {
		for _, i := range indexes {
			keys = append(keys, all[i])
		}
		return keys
	}
	lists := [][]int{{0}, {1}, {0, 1}, {1, 0}, {0, 2}, {2, 3}, {0, 1, 2}, {2, 0}, {3, 1, 2, 0}, {1, 2}}
	for _, from := range lists {
		for _, to := range lists {
			ring, err := memberlist.NewKeyring(nil, choose(from)[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := replaceKeys(ring, choose(from)); err != nil {
				t.Fatal(err)
			}
			before := ring.GetKeys()
			was := slices.Clone(before)
			if err := replaceKeys(ring, choose(to)); err != nil {
				t.Errorf("from %v to %v: %v", from, to, err)
			}
			has := ring.GetKeys()
			if len(has) != len(to) || !bytes.Equal(has[0], all[to[0]]) {
				t.Errorf("from %v to %v: %d keys, or another is the first", from, to, len(has))
			}
			for _, key := range choose(to) {
				if !slices.ContainsFunc(has, func(k []byte) bool { return bytes.Equal(k, key) }) {
					t.Errorf("from %v to %v: a key is missing", from, to)
				}
			}
			if !slices.EqualFunc(before, was, bytes.Equal) {
				t.Errorf("from %v to %v: the keys of a reader were moved", from, to)
			}
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(NewKey().String() + "\n# the next one\n" + NewKey().String()))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParseKeys(text)
		if err != nil {
			return
		}
		var again []byte
		for _, key := range keys {
			again = append(again, key.String()+"\n"...)
		}
		if read, err := ParseKeys(again); err != nil || !slices.EqualFunc(keys, read, func(a, b Key) bool {
			return bytes.Equal(a, b)
		}) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
