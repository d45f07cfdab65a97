// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A machine of another architecture cannot have the programs that are installed here. It has Debian's programs, of the
// same release as its kernel. They are unpacked and never configured.

// rootPackages are Debian's packages of a laboratory's programs, and of those that read their output.
var rootPackages = []string{
	"busybox-static", "apache2-utils", "wrk", "iperf3", "dnsperf", "nginx-light", "libnginx-mod-stream",
	"bind9", "haproxy",
	"keepalived", "ipvsadm", "bird2", "iptables", "nftables", "openssl", "iproute2", "ethtool", "netbase",
}

// unwanted are directories of packages that no program needs.
var unwanted = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info",
	"usr/share/bash-completion", "usr/include"}

// unpackRoot fetches the packages with all their dependencies, and unpacks them below dir.
func (f fetcher) unpackRoot(dir string) error {
	debs := filepath.Join(f.work, "rootdebs")
	if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
		return err
	}
	args := []string{"-q", "--yes", "--no-install-recommends", "--download-only", "-o", "Dir::Cache::archives=" + debs,
		"install"}
	if err := f.run(f.work, "apt-get", append(args, rootPackages...)...); err != nil {
		return err
	}
	for _, name := range merged {
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "usr", name), 0o755),
			os.Symlink("usr/"+name, filepath.Join(dir, name)))
		if err != nil {
			return err
		}
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := f.unpackInto(file, dir); err != nil {
			return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
		}
	}
	for _, name := range unwanted {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// unpackInto unpacks a package whose directories may be links in the root; dpkg-deb would replace the links.
func (f fetcher) unpackInto(file, dir string) error {
	command := f.command(f.work, "dpkg-deb", "--fsys-tarfile", file)
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	err = unpackTar(out, dir)
	_, _ = io.Copy(io.Discard, out)
	return errors.Join(err, command.Wait())
}

// unpackTar writes an archive's directories, files and links below dir, without owners and devices.
func unpackTar(from io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, header, archive); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// unpackEntry writes one entry. Files that root opens are below it, whatever the archive contains.
func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name := filepath.Clean(header.Name)
	if header.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(header.Linkname), name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fs.FileMode(header.Mode)&0o755|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	return nil
}
