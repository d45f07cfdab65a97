// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
)

// keyLengths are the lengths of the keys of AES-128, AES-192 and AES-256, in bytes.
var keyLengths = []int{16, 24, 32}

const (
	// maxKeyFile bounds a file with keys, in bytes.
	maxKeyFile = 4096
	// maxKeys bounds the accepted keys: each is tried on an untrusted host's packets.
	maxKeys = 4
)

// Key is a secret by which members authenticate and encrypt their messages.
type Key []byte

// Keys are the keys that a member accepts, at least one; it encrypts with the first.
type Keys []Key

// NewKey returns a random key.
func NewKey() Key {
	key := make(Key, 32)
	_, _ = rand.Read(key) // it never fails
	return key
}

// String returns the key in the format of its file.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k) }

// ParseKey parses the content of a key's file. Error: ErrKey.
func ParseKey(text []byte) (Key, error) {
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: it is not base64", ErrKey)
	case !slices.Contains(keyLengths, len(key)):
		return nil, fmt.Errorf("%w: it has %d bytes, not 16, 24 or 32", ErrKey, len(key))
	}
	return key, nil
}

// ParseKeys parses the content of a file of keys: a key a line; empty lines and lines that begin with # are skipped.
// Error: ErrKey.
func ParseKeys(text []byte) (Keys, error) {
	var keys Keys
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := ParseKey(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", number, err)
		case slices.ContainsFunc(keys, func(other Key) bool { return bytes.Equal(key, other) }):
			return nil, fmt.Errorf("line %d: %w: it repeats another line", number, ErrKey)
		case len(keys) == maxKeys:
			return nil, fmt.Errorf("line %d: %w: there can be %d", number, ErrKey, maxKeys)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrKey)
	}
	return keys, nil
}

// ReadKeys reads keys from a file that only its owner and group may read. Errors: ErrKey, those of the file system.
func ReadKeys(path string) (Keys, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o027 != 0 {
		return nil, fmt.Errorf(
			"%w: %s can be read by others than its owner and group, or changed by others than its owner: `chmod g-w,o= %[2]s`", ErrKey, path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%w: it has more than %d bytes", ErrKey, maxKeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; `jeoul members key` makes one", path, err)
	}
	return keys, nil
}

// Derive returns 32 bytes for a purpose, which reveal nothing of the key or of those for other purposes (HKDF, RFC
// 5869).
func (k Key) Derive(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k, nil, "jeoul members: "+purpose, sha256.Size)
}

// Derive returns 32 bytes of each key for a purpose, in their order.
func (k Keys) Derive(purpose string) (derived [][]byte, err error) {
	for _, key := range k {
		one, err := key.Derive(purpose)
		if err != nil {
			return nil, err
		}
		derived = append(derived, one)
	}
	return derived, nil
}

// fingerprints identify the keys for people to compare, and reveal nothing of them: 32 bits, derived for that alone.
func (k Keys) fingerprints() []string {
	names := make([]string, len(k))
	for i, key := range k {
		name, err := key.Derive("name")
		if err != nil { // never, for keys of these lengths
			continue
		}
		names[i] = hex.EncodeToString(name[:4])
	}
	return names
}
