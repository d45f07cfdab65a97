// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// moduleDirs are the directories of the kernel's modules that a laboratory can use, and of those of the port to the
// outside, which Debian 12's kernel has as modules. Of drivers/net, only virtual devices are used.
var moduleDirs = []string{"kernel/net", "kernel/lib", "kernel/crypto", "kernel/drivers/virtio"}

const (
	virtualDevices = "kernel/drivers/net"
	portDriver     = "kernel/drivers/char/virtio_console.ko"
)

// indexModules copies the modules, uncompressed, to the directory from which the machine's are taken, and indexes them.
// In an emulated machine, decompression would take seconds at each start.
func (f fetcher) indexModules(dir, version string) error {
	from, err := globOne(filepath.Join(dir, "usr", "lib", "modules", version))
	if err != nil {
		if from, err = globOne(filepath.Join(dir, "lib", "modules", version)); err != nil {
			return err
		}
	}
	// depmod looks for lib/modules below its argument.
	root := filepath.Join(dir, "lib", "modules")
	final := filepath.Join(dir, modulesBelow)
	staging := filepath.Join(f.work, "modules")
	if err := copyModules(from, filepath.Join(staging, "lib", "modules", version)); err != nil {
		return err
	}
	if err := f.decompress(staging); err != nil {
		return err
	}
	if err := f.run(f.work, busyboxProgram, "depmod", "-b", staging, version); err != nil {
		return err
	}
	for _, path := range []string{from, root, filepath.Join(dir, "usr")} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(staging, "lib", "modules"), final)
}

// copyModules copies the chosen modules and the lists of built-in ones.
func copyModules(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil || !wantedModule(below) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, below)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, below), data, 0o644)
	})
}

// wantedModule reports whether a file below /lib/modules/VERSION goes into the machine.
func wantedModule(below string) bool {
	dir := filepath.Dir(below)
	return dir == "." && strings.HasPrefix(below, "modules.") || dir == virtualDevices ||
		strings.HasPrefix(below, portDriver) ||
		slices.ContainsFunc(moduleDirs, func(d string) bool { return strings.HasPrefix(below, d+"/") })
}

// decompress decompresses every module.
func (f fetcher) decompress(dir string) error {
	var packed []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".ko.xz") {
			packed = append(packed, path)
		}
		return err
	})
	if err != nil || len(packed) == 0 {
		return err
	}
	return f.run(dir, "xz", append([]string{"--decompress", "--"}, packed...)...)
}
