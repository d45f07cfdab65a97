// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
	"github.com/u-root/u-root/pkg/ldd"
)

// Paths in the machine.
const (
	jeoulPath = "/usr/bin/jeoul"
	// speakerPath is where jeoul looks for its BGP speaker: in its own directory.
	speakerPath = "/usr/bin/jeoul-bgp"
	workerPath  = "/usr/bin/jeoul-worker"
	// OtherPath is the path of Machine.Other in the machine.
	OtherPath = "/usr/bin/jeoul-other"
	jobDir    = "/job"
	jobPath   = jobDir + "/job.json"
)

// merged are directories of the root that are links into /usr, as in today's distributions: a library has two paths.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// image is a file system for a machine, in the form that its kernel unpacks into memory
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type image struct {
	records []cpio.Record
	have    map[string]bool
	read    *cpio.Recorder
}

// newImage makes an image with this jeoul, the programs of the laboratory that are installed here (or, for another
// architecture, those of the kernel's directory), and the kernel's modules.
func newImage(executable string, kernel *Kernel) (*image, error) {
	im := &image{have: map[string]bool{}, read: cpio.NewRecorder()}
	for _, dir := range directories {
		im.dir(dir)
	}
	for _, name := range merged {
		im.add(cpio.Symlink(name, "usr/"+name))
	}
	im.add(cpio.Symlink("var/run", "../run"))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		im.text(name, texts[name])
	}
	if root := kernel.root(); root != "" {
		return im, errors.Join(im.jeoul(executable), im.tree(root), im.modules(kernel))
	}
	return im, errors.Join(im.jeoul(executable), im.busybox(), im.programs(), im.data(), im.modules(kernel))
}

// jeoul adds the program, and its BGP speaker if that is in the same directory.
func (im *image) jeoul(executable string) error {
	err := im.fileAs(executable, jeoulPath)
	if speaker := filepath.Join(filepath.Dir(executable), filepath.Base(speakerPath)); err == nil {
		if _, missing := os.Stat(speaker); missing == nil {
			err = im.fileAs(speaker, speakerPath)
		}
	}
	return err
}

func (im *image) add(r cpio.Record) {
	r.Name = cpio.Normalize(r.Name)
	if im.have[r.Name] {
		return
	}
	im.have[r.Name] = true
	im.records = append(im.records, r)
}

// dir adds a directory and its parents.
func (im *image) dir(path string) {
	path = cpio.Normalize(path)
	if path == "." || path == "" || im.have[path] {
		return
	}
	im.dir(filepath.Dir(path))
	mode := uint64(0o755)
	if path == "tmp" || path == "var/tmp" {
		mode = 0o1777
	}
	im.add(cpio.Directory(path, mode))
}

func (im *image) text(path, text string) {
	im.dir(filepath.Dir(path))
	im.add(cpio.StaticFile(path, text, 0o644))
}

// fileAs adds a file of this machine under another name.
func (im *image) fileAs(path, as string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	record, err := im.read.GetRecord(real)
	if err != nil {
		return fmt.Errorf("reading %s: %w", real, err)
	}
	im.dir(filepath.Dir(as))
	record.Name = as
	im.add(record)
	return nil
}

// file adds a file under its own name, and if that is a link, its target.
func (im *image) file(path string) error {
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return err
		}
		path = filepath.Join(dir, filepath.Base(path))
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		as := inUsr(path)
		if info.Mode()&fs.ModeSymlink == 0 {
			return im.fileAs(path, as)
		}
		to, err := os.Readlink(path)
		if err != nil {
			return err
		}
		im.dir(filepath.Dir(as))
		im.add(cpio.Symlink(as, to))
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return fmt.Errorf("%s: too many links", path)
}

// maxLinks is the kernel's own bound on a chain of links (MAXSYMLINKS).
const maxLinks = 40

// inUsr returns the path of a file of this machine in the virtual machine, whose root has only links into /usr.
func inUsr(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if slices.Contains(merged, first) {
		return "/usr" + path
	}
	return path
}

// busybox adds the program that the kernel calls to load a module.
func (im *image) busybox() error {
	path, err := find(busyboxProgram)
	if err != nil {
		return err
	}
	libraries, err := ldd.List(path)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", path, err)
	}
	if len(libraries) > 0 {
		return fmt.Errorf("%s is linked dynamically, which its machine cannot use: install busybox-static", path)
	}
	im.add(cpio.Symlink("usr/sbin/modprobe", "/usr/bin/busybox"))
	im.add(cpio.Symlink("usr/bin/sh", "/usr/bin/busybox"))
	return im.fileAs(path, "/usr/bin/busybox")
}

// programs adds the installed programs of the laboratory, with their libraries.
func (im *image) programs() error {
	var paths []string
	for _, name := range programs {
		path, err := find(name)
		switch {
		case errors.Is(err, ErrMissing):
			continue
		case err != nil:
			return err
		}
		paths = append(paths, path)
	}
	for _, pattern := range plugins {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		paths = append(paths, found...)
	}
	libraries, err := ldd.List(slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		return !isELF(path)
	})...)
	if err != nil {
		return fmt.Errorf("listing the libraries of the laboratory's programs: %w", err)
	}
	return im.files(append(paths, libraries...))
}

func (im *image) files(paths []string) error {
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if err := im.file(path); err != nil {
			return fmt.Errorf("putting %s into the machine: %w", path, err)
		}
	}
	return nil
}

// isELF reports whether a file is a program or library of this machine's kind.
func isELF(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

func (im *image) data() error {
	var there []string
	for _, path := range data {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			there = append(there, path)
		}
	}
	return im.files(there)
}

// modules adds the kernel's modules.
func (im *image) modules(kernel *Kernel) error {
	return filepath.WalkDir(kernel.Modules, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(kernel.Modules, path)
		if err != nil {
			return err
		}
		return im.fileAs(path, filepath.Join("/usr/lib/modules", kernel.Version, below))
	})
}

// write writes the archive, in the "newc" format that kernels read. It is not compressed: unpacking it would cost an
// emulated machine more time than copying it.
func (im *image) write(w io.Writer) error {
	to := cpio.Newc.Writer(w)
	for _, record := range im.records {
		if err := to.WriteRecord(cpio.MakeReproducible(record)); err != nil {
			return fmt.Errorf("writing the machine's file system: %s: %w", record.Name, err)
		}
	}
	return cpio.WriteTrailer(to)
}

// alternatives are names that Debian's packages give to programs when they are configured.
var alternatives = map[string]string{
	"usr/sbin/iptables":          "xtables-nft-multi",
	"usr/sbin/iptables-save":     "xtables-nft-multi",
	"usr/sbin/iptables-restore":  "xtables-nft-multi",
	"usr/sbin/ip6tables":         "xtables-nft-multi",
	"usr/sbin/ip6tables-save":    "xtables-nft-multi",
	"usr/sbin/ip6tables-restore": "xtables-nft-multi",
}

// tree adds everything in a root.
func (im *image) tree(root string) error {
	im.add(cpio.Symlink("usr/sbin/modprobe", "/usr/bin/busybox"))
	im.add(cpio.Symlink("usr/bin/sh", "/usr/bin/busybox"))
	for name, to := range alternatives {
		im.add(cpio.Symlink(name, to))
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, path)
		if err != nil || slices.Contains(merged, below) {
			return err
		}
		if entry.IsDir() {
			im.dir(below)
			return nil
		}
		record, err := im.read.GetRecord(path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		record.Name = strings.TrimPrefix(below, "/")
		im.add(record)
		return nil
	})
}
