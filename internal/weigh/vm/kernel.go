// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kernel is a kernel and its modules, unpacked.
type Kernel struct {
	// Dir is the directory into which it was unpacked.
	Dir string
	// Arch is the architecture of its machine; empty for this machine's own.
	Arch Arch
	// Version is its release, as `uname -r` prints it, Package the package that it comes from; empty if that is not
	// known.
	Version, Package string
	// Image is the path of the kernel itself.
	Image string
	// Modules is the directory of its modules, uncompressed and indexed, as /lib/modules/VERSION.
	Modules string
}

// root is the directory of Debian's programs for the machine; "" where the machine gets the programs that are installed
// here.
func (k *Kernel) root() string {
	if k.Arch.isOwn() {
		return ""
	}
	return filepath.Join(k.Dir, rootBelow)
}

// markName is the file in a kernel's directory that is written last: the package's
// name and the SHA-256 of the image.
const markName = "complete"

// OpenKernel opens a directory that Fetch has made, and checks that it is complete. Its errors wrap ErrKernel.
func OpenKernel(dir string) (*Kernel, error) {
	refuse := func(format string, args ...any) (*Kernel, error) {
		return nil, fmt.Errorf("%s: %w: %s", dir, ErrKernel, fmt.Sprintf(format, args...))
	}
	mark, err := os.ReadFile(filepath.Join(dir, markName))
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("it was not unpacked to its end; remove it")
	}
	if err != nil {
		return refuse("%v", err)
	}
	name, sum, _ := strings.Cut(strings.TrimSpace(string(mark)), " ")
	k := &Kernel{Dir: dir, Package: name}
	if k.Image, err = globOne(filepath.Join(dir, "boot", "vmlinuz-*")); err != nil {
		return refuse("%v", err)
	}
	k.Version = strings.TrimPrefix(filepath.Base(k.Image), "vmlinuz-")
	k.Modules = filepath.Join(dir, modulesBelow, k.Version)
	if _, err := os.Stat(filepath.Join(k.Modules, "modules.dep")); err != nil {
		return refuse("its modules are not indexed; remove it: %v", err)
	}
	got, err := sumOf(k.Image)
	if err != nil {
		return refuse("%v", err)
	}
	if got != sum {
		return refuse("%s has changed since it was unpacked; remove the directory", k.Image)
	}
	return k, nil
}

// mark writes the file that marks a kernel as complete.
func (k *Kernel) mark() error {
	sum, err := sumOf(k.Image)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(k.Dir, markName), []byte(k.Package+" "+sum+"\n"), 0o644)
}

// globOne returns the only path that matches.
func globOne(pattern string) (string, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(paths) != 1 {
		return "", fmt.Errorf("%d files match %s; there must be one", len(paths), pattern)
	}
	return paths[0], nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// rootBelow is the directory of the root, below a kernel's directory.
const rootBelow = "root"

// modulesBelow is the directory of a kernel's modules, below its directory, as the machine will have them.
const modulesBelow = "modules"
