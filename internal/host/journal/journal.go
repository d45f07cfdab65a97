// SPDX-License-Identifier: Apache-2.0

// Package journal has the common parts of journals of changes to a host: a change is written into the journal before it
// is made, so that the next process after a crash can undo it. The package reads and replaces the file, and identifies
// the boot and network namespace of the changes; hostnet and tune have their own formats of changes.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// MaxSize bounds the read of a file that may be no journal at all, in bytes; a change takes about 150.
const MaxSize = 16 << 20

// NewSuffix is the suffix of a file that is about to replace a journal.
const NewSuffix = durable.NewSuffix

// Place identifies the network namespace and the boot of changes.
type Place struct {
	// Boot is the kernel's boot_id.
	Boot string `json:"boot"`
	// Namespace is the inode number; Cookie distinguishes namespaces that had the same inode number one after the other
	// (0: the kernel has no cookies).
	Namespace uint64 `json:"namespace"`
	Cookie    uint64 `json:"cookie"`
}

// In returns the place with a network namespace.
func (p Place) In(ns *namespace.Namespace) (Place, error) {
	cookie, err := ns.Cookie()
	p.Namespace, p.Cookie = ns.Inode(), cookie
	return p, err
}

// Read reads a journal. Its changes are undone with our rights, so no other user may be able to write it. For an
// untrusted file, or one longer than MaxSize, the error wraps damaged; other errors are those of opening and reading.
func Read(path string, damaged error) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || !isTrusted(stat.Uid, filepath.Dir(path)) || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%w: others than its owner could have written it: look at it, and remove it", damaged)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err == nil && len(data) > MaxSize {
		err = fmt.Errorf("%w: it is longer than %d bytes", damaged, MaxSize)
	}
	return data, err
}

// isTrusted reports whether the owner of a journal is trusted: root, our own user, and, where an administrator cleans
// up after a service, the user that owns the directory and is the only one who can write to it.
func isTrusted(uid uint32, dir string) bool {
	if uid == 0 || int(uid) == os.Geteuid() {
		return true
	}
	var stat unix.Stat_t
	return unix.Stat(dir, &stat) == nil && stat.Uid == uid && stat.Mode&0o022 == 0
}

// Decode decodes one JSON value, and rejects unknown fields and trailing data.
func Decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("something follows")
	}
	return nil
}

// Replace replaces a file atomically. It follows no link that another user may have put into a directory that others
// can write to.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return durable.Replace(durable.OS, path, data, mode, false)
}

// ReplaceOnDisk is Replace for a file that outlives the boot: it is on disk on return.
func ReplaceOnDisk(path string, data []byte, mode fs.FileMode) error {
	if err := durable.Replace(durable.OS, path, data, mode, true); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir syncs the entries of a directory to disk.
func SyncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
