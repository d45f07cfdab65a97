// SPDX-License-Identifier: Apache-2.0

// Package program finds the other programs of this product on a host, and identifies builds of a program.
package program

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNotInstalled is the cause of Find's errors: the program is not installed on the host.
var ErrNotInstalled = errors.New("the program is not installed")

// Find returns the path of the program jeoul-SUFFIX: beside this program, in ../libexec/jeoul, or in PATH, in this
// order. The error, an ErrNotInstalled, says how to install it.
func Find(suffix string) (string, error) { return find(suffix, os.Executable, exec.LookPath) }

func find(suffix string, self func() (string, error), look func(string) (string, error)) (string, error) {
	name := "jeoul-" + suffix
	if own, err := self(); err == nil {
		dir := filepath.Dir(own)
		for _, path := range []string{filepath.Join(dir, name), filepath.Join(dir, "../libexec/jeoul", name)} {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	path, err := look(name)
	// LookPath rejects relative directories in PATH, to which another user may have written.
	if err != nil {
		return "", &missingError{name, suffix}
	}
	return path, nil
}

// missingError explains how to install a program.
type missingError struct{ name, suffix string }

func (e *missingError) Error() string {
	return fmt.Sprintf("the program %s is not installed: install the package %[1]s, or put the program beside jeoul or "+
		"into PATH (`make build-%s` makes it)", e.name, e.suffix)
}

func (e *missingError) Unwrap() error { return ErrNotInstalled }

// Build returns the build ID in an executable file, a hash of its parts that Go's linker writes.
func Build(file io.ReaderAt) (string, error) {
	executable, err := elf.NewFile(file)
	if err != nil {
		return "", err
	}
	defer executable.Close()
	section := executable.Section(".note.go.buildid")
	if section == nil {
		return "", errors.New("the program has no build ID of Go")
	}
	note, err := section.Data()
	// An ELF note: three words of 32 bits, the name "Go" in four bytes, and the ID.
	if err == nil && len(note) < noteHeader {
		err = errors.New("the note of the build ID is cut off")
	}
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(note[noteHeader:]), "\x00"), nil
}

// noteHeader is the length in bytes of the header before the ID in the note of Go's build ID.
const noteHeader = 16

// OwnBuild returns the build ID of the running program.
func OwnBuild() (string, error) {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer file.Close()
	return Build(file)
}
