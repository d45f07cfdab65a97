// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultRelease is the release of Debian whose kernel is used.
const DefaultRelease = "trixie"

// metaPackage depends on a release's newest kernel for virtual machines, which is the ordinary kernel without drivers
// of hardware.
func metaPackage(arch Arch) string { return "linux-image-cloud-" + string(arch) }

// keyring holds the keys with which Debian signs its archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// CacheDir returns the directory of cached kernels: jeoul/kernels in the user's cache.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a place for kernels: %w: set HOME or XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, "jeoul", "kernels"), nil
}

// Fetch returns the kernel of a release of Debian for an architecture from the cache; for another architecture than
// this machine's, with the programs of a laboratory. apt downloads a kernel that is not in the cache, with separate
// package lists, so that this machine may have another release. apt checks the archive's signature and every hash.
// Nothing is installed. Fetch calls say before steps that take long.
func Fetch(ctx context.Context, cache, release string, arch Arch, say func(string)) (*Kernel, error) {
	if !releaseName.MatchString(release) {
		return nil, fmt.Errorf("%q is not a name of a Debian release, such as %s", release, DefaultRelease)
	}
	if err := arch.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("making a place for kernels: %w", err)
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	f := fetcher{ctx: ctx, dir: filepath.Join(cache, release+"-"+string(arch)), release: release, arch: arch}
	kernel, err := OpenKernel(f.dir)
	if err != nil {
		say(fmt.Sprintf("fetching the kernel of Debian %s for %s into %s", release, arch, f.dir))
		kernel, err = f.fetch()
	}
	if err != nil {
		return nil, fmt.Errorf("fetching the kernel of Debian %s for %s: %w", release, arch, err)
	}
	kernel.Arch = arch
	return kernel, nil
}

var releaseName = regexp.MustCompile(`^[a-z]+(-backports)?$`)

// lock excludes other processes until unlock is called.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the cache of kernels: %w", err)
	}
	return func() { f.Close() }, nil
}

// fetch makes the kernel's directory in a temporary place, and moves it to its own when it is complete.
func (f fetcher) fetch() (_ *Kernel, err error) {
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-deb", "xz", busyboxProgram} {
		if _, err := find(program); err != nil {
			return nil, err
		}
	}
	if f.work, err = os.MkdirTemp(filepath.Dir(f.dir), "."+f.release+"-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.work)) }()
	if err := f.prepareApt(); err != nil {
		return nil, err
	}
	if err := f.run(f.work, "apt-get", "-q", "update"); err != nil {
		return nil, err
	}
	packages, err := f.packages()
	if err != nil {
		return nil, err
	}
	unpacked := filepath.Join(f.work, "unpacked")
	if err := f.unpack(packages, unpacked); err != nil {
		return nil, err
	}
	if !f.arch.isOwn() {
		if err := f.unpackRoot(filepath.Join(unpacked, rootBelow)); err != nil {
			return nil, fmt.Errorf("fetching the laboratory's programs: %w", err)
		}
	}
	if err := f.complete(unpacked, packages[0]); err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(f.dir), os.Rename(unpacked, f.dir)); err != nil {
		return nil, err
	}
	return OpenKernel(f.dir)
}

// prepareApt writes a configuration with which apt uses the release and nothing else.
func (f fetcher) prepareApt() error {
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial", "deb"} {
		if err := os.MkdirAll(filepath.Join(f.work, dir), 0o755); err != nil {
			return err
		}
	}
	source := fmt.Sprintf("deb [signed-by=%s] http://deb.debian.org/debian %s main\n", keyring, f.release)
	if !strings.HasSuffix(f.release, "-backports") && f.release != "sid" && f.release != "testing" {
		source += fmt.Sprintf("deb [signed-by=%s] http://deb.debian.org/debian-security %s-security main\n",
			keyring, f.release)
	}
	conf := fmt.Sprintf(`Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "%[1]s/state";
Dir::Cache "%[1]s/cache";
Dir::State::status "%[1]s/state/status";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
`, f.work, f.arch)
	return errors.Join(
		// Nothing is installed, so that all dependencies of a package are fetched.
		os.WriteFile(filepath.Join(f.work, "state", "status"), nil, 0o644),
		os.WriteFile(filepath.Join(f.work, "sources.list"), []byte(source), 0o644),
		os.WriteFile(filepath.Join(f.work, "apt.conf"), []byte(conf), 0o644))
}

// packages lists the package of the kernel, and the packages that hold a part of it: newer packages leave the image and
// the modules to others.
func (f fetcher) packages() ([]string, error) {
	images, err := f.depends(metaPackage(f.arch), "image")
	if err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("the release has no %s", metaPackage(f.arch))
	}
	parts, err := f.depends(images[0], "binary|modules")
	return append(images, parts...), err
}

// depends lists the dependencies of a package that are named linux-WHAT-VERSION.
func (f fetcher) depends(name, what string) ([]string, error) {
	command := f.command(f.work, "apt-cache", "depends", name)
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("asking apt what %s depends on: %w", name, err)
	}
	return dependencies(output, what), nil
}

func dependencies(output []byte, what string) []string {
	depends := regexp.MustCompile(`(?m)^ *Depends: (linux-(?:` + what + `)-[0-9]\S*)$`)
	var names []string
	for _, match := range depends.FindAllSubmatch(output, -1) {
		names = append(names, string(match[1]))
	}
	return names
}

func (f fetcher) unpack(packages []string, into string) error {
	deb := filepath.Join(f.work, "deb")
	if err := f.run(deb, "apt-get", append([]string{"-q", "download"}, packages...)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(deb, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := f.run(f.work, "dpkg-deb", "-x", file, into); err != nil {
			return err
		}
	}
	return nil
}

// complete prepares the modules and marks the kernel as complete.
func (f fetcher) complete(dir, name string) error {
	image, err := globOne(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		image, err = f.moveImage(dir)
	}
	if err != nil {
		return err
	}
	kernel := &Kernel{Dir: dir, Package: name, Image: image, Version: strings.TrimPrefix(filepath.Base(image),
		"vmlinuz-")}
	if err := f.indexModules(dir, kernel.Version); err != nil {
		return err
	}
	return kernel.mark()
}

// moveImage moves a kernel that newer packages have among its modules to the place where other packages have it, and
// returns its path there.
func (f fetcher) moveImage(dir string) (string, error) {
	from, err := globOne(filepath.Join(dir, "usr", "lib", "modules", "*", "vmlinuz"))
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "boot", "vmlinuz-"+filepath.Base(filepath.Dir(from)))
	return to, errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Rename(from, to))
}
