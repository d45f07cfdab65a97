// SPDX-License-Identifier: Apache-2.0

// Package sysctl reads and writes the kernel's settings under /proc/sys by their names in sysctl(8). Names under net
// are settings of the calling thread's network namespace.
package sysctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors that callers may test for.
var (
	// ErrName means that a string is not the name of a sysctl.
	ErrName = errors.New("not a sysctl's name")
	// ErrReadOnly means that /proc/sys is mounted read-only.
	ErrReadOnly = errors.New(
		"/proc/sys is read-only here, as in most containers: set it on the host, or give the container a writable one")
	// ErrNotKept means that the kernel accepted a value but keeps another one.
	ErrNotKept = errors.New("the kernel made another value of it")
)

// Tree is a file system that has a proc/sys; the zero Tree is the machine's own.
type Tree struct{ Root string }

// Relative returns the file of a sysctl below /proc/sys. As in sysctl(8), '.' separates and '/' stands for a dot within
// a part, unless the first separator of the name is '/', which swaps the two: net.ipv4.conf.eth0/100.forwarding is
// net/ipv4/conf/eth0.100/forwarding. The error is ErrName.
func Relative(name string) (string, error) {
	path := name
	if first := strings.IndexAny(name, "./"); first >= 0 && name[first] == '.' {
		path = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
	}
	parts := strings.Split(path, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, " \t\n\x00") {
			return "", fmt.Errorf("sysctl %q: %w", name, ErrName)
		}
	}
	if len(parts) < 2 {
		return "", fmt.Errorf("sysctl %q: %w", name, ErrName)
	}
	return path, nil
}

// Path returns the file of a sysctl. The error is ErrName.
func (t Tree) Path(name string) (string, error) {
	path, err := Relative(name)
	if err != nil {
		return "", err
	}
	return filepath.Join("/", t.Root, "proc/sys", path), nil
}

// Read returns a value in one line. Errors: ErrName, and fs.ErrNotExist if the kernel (or the namespace) has no such
// sysctl.
func (t Tree) Read(name string) (string, error) {
	path, err := t.Path(name)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return OneLine(string(data)), nil
}

// Write sets a value. Errors: those of Read, ErrReadOnly, and the kernel's for a value that it refuses.
func (t Tree) Write(name, value string) error {
	path, err := t.Path(name)
	if err != nil {
		return err
	}
	// Without O_CREATE: a sysctl that does not exist is an error.
	flags := os.O_WRONLY
	if t.Root != "" {
		// A plain file would keep the end of a longer value.
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return explainError(name, value, err)
	}
	// In one write, because the kernel parses each write as a value.
	_, err = file.WriteString(value + "\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return explainError(name, value, err)
	}
	return nil
}

// Set writes value and reads it back: some sysctls accept a value but keep another one. In that case it restores old
// and returns ErrNotKept.
func (t Tree) Set(name, old, value string) error {
	if err := t.Write(name, value); err != nil {
		return err
	}
	now, err := t.Read(name)
	if err != nil {
		return err
	}
	if now != OneLine(value) {
		return errors.Join(fmt.Errorf("set %s to %s: %w: %s", name, value, ErrNotKept, now), t.Write(name, old))
	}
	return nil
}

// Writable reports whether the calling process may set a sysctl.
func (t Tree) Writable(name string) bool {
	path, err := t.Path(name)
	return err == nil && unix.Access(path, unix.W_OK) == nil
}

func explainError(name, value string, err error) error {
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("set %s to %s: %w (%w)", name, value, ErrReadOnly, err)
	}
	return fmt.Errorf("set %s to %s: %w", name, value, err)
}

// Read is the machine's Tree.Read.
func Read(name string) (string, error) { return Tree{}.Read(name) }

// Write is the machine's Tree.Write.
func Write(name, value string) error { return Tree{}.Write(name, value) }

// Set is the machine's Tree.Set.
func Set(name, old, value string) error { return Tree{}.Set(name, old, value) }

// Writable is the machine's Tree.Writable.
func Writable(name string) bool { return Tree{}.Writable(name) }

// OneLine normalises the white space of a value: the kernel separates numbers with tabs.
func OneLine(value string) string { return strings.Join(strings.Fields(value), " ") }
