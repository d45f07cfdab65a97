// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Errors that callers may test for.
var (
	// ErrKey: a file is no key of members.
	ErrKey = errors.New("no key of members")
)

// keyLengths are those of AES-128, AES-192 and AES-256, in bytes.
var keyLengths = []int{16, 24, 32}

// mostKeyFile is more than a file with a key has, in bytes.
const mostKeyFile = 1024

// Key is what members know each other by, and encrypt by.
type Key []byte

// NewKey returns a fresh one.
func NewKey() Key {
	key := make(Key, 32)
	_, _ = rand.Read(key) // it never fails
	return key
}

// String is the key as its file has it.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k) }

// ParseKey reads what a key's file has. Error: ErrKey.
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

// ReadKey reads a key from a file, which others than its owner and group must not be able to read. Errors: ErrKey,
// those of the file system.
func ReadKey(path string) (Key, error) {
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
		return nil, fmt.Errorf("%w: %s can be read by others than its owner and group, or changed by others than its owner: `chmod g-w,o= %[2]s`", ErrKey, path)
	}
	text, err := io.ReadAll(io.LimitReader(file, mostKeyFile))
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; `jeoul members key` makes one", path, err)
	}
	return key, nil
}

// Derive returns 32 bytes for a purpose: see Group.
func (k Key) Derive(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k, nil, "jeoul members: "+purpose, sha256.Size)
}
