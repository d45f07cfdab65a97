// SPDX-License-Identifier: Apache-2.0

// Package scripts tests shell scripts with stand-ins for the programs that they run.
package scripts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// standIns writes shell scripts by name into a directory of their own, and returns it.
func standIns(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nset -e\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bash returns a command that runs lines as a script of this directory begins, with stand-ins first in PATH.
func bash(t *testing.T, standIns, lines string, arguments ...string) *exec.Cmd {
	t.Helper()
	program := testenv.Program(t, "bash")
	command := exec.Command(program, append([]string{"-c", lines, "scripts/test.sh"}, arguments...)...)
	command.Dir = ".."
	command.Env = append(os.Environ(), "PATH="+standIns+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"TMPDIR="+t.TempDir())
	return command
}

const (
	// nfpm stands for `go run nfpm … --target FILE`: a package whose contents are not compressed.
	nfpm = `for target; do :; done
cd "$(mktemp -d)"
echo 2.0 >debian-binary
touch control.tar.gz data.tar
llvm-ar --format=gnu qcSD "$target" debian-binary control.tar.gz data.tar
if [ -n "$LIST" ]; then find "$STAGE/usr" -printf '%m %y %P\n' >"$LIST"; fi`
	// jeoul stands for the program that prints its manual pages and completions.
	jeoul = `case $1 in
man) mkdir "$2" && echo page >"$2/jeoul.1" ;;
completion) echo "complete $2" ;;
esac`
)

// pack runs package.sh with stand-ins, and returns what it printed.
func pack(t *testing.T, programs map[string]string, umask, to string, environment ...string) (string, error) {
	t.Helper()
	testenv.Program(t, "git")
	if _, err := os.Stat("../.git"); err != nil {
		t.Skip("the version of a package is a commit's, and this tree is no clone: ", err)
	}
	testenv.Program(t, "llvm-ar")
	testenv.Program(t, "xz")
	all := map[string]string{"go": nfpm, "jeoul": jeoul}
	for name, text := range programs {
		all[name] = text
	}
	dir := standIns(t, all)
	command := bash(t, dir, `umask "$1" && exec scripts/package.sh deb "$2" "$3"`, umask, "/bin/true", to)
	command.Env = append(command.Env, "GO="+filepath.Join(dir, "go"), "HERE="+filepath.Join(dir, "jeoul"),
		"ARCH=amd64", "VERSION=1", "NFPM=nfpm")
	command.Env = append(command.Env, environment...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// TestPackageFails: a package that could not be made is not reported as made, also where one of its name exists.
func TestPackageFails(t *testing.T) {
	to := t.TempDir()
	file := filepath.Join(to, "jeoul_1_amd64.deb")
	output, err := pack(t, nil, "022", to)
	if err != nil || !strings.Contains(output, file+": ") {
		t.Fatalf("error %v\n%s", err, output)
	}
	made, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, programs := range map[string]map[string]string{
		"nfpm":         {"go": "exit 1"},
		"files":        {"install": "exit 1"},
		"manual pages": {"jeoul": `[ "$1" != man ]` + "\n" + jeoul},
		"completion":   {"jeoul": `[ "$1" != completion ]` + "\n" + jeoul},
		"xz":           {"xz": "exit 1"},
		"the last step": {
			"llvm-ar": `[ "$1" = x ] && exec "$LLVM_AR" "$@"`,
			"go":      strings.ReplaceAll(nfpm, "llvm-ar", `"$LLVM_AR"`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := pack(t, programs, "022", to, "LLVM_AR="+testenv.Program(t, "llvm-ar"))
			if err == nil {
				t.Errorf("a package is reported as made:\n%s", output)
			}
			if now, err := os.ReadFile(file); err != nil || string(now) != string(made) {
				t.Errorf("the former package has changed: %d bytes of %d, error %v", len(now), len(made), err)
			}
		})
	}
}

// TestPackageModes: whatever the umask, all users can read what a package brings to /usr, and the package.
func TestPackageModes(t *testing.T) {
	to, list := t.TempDir(), filepath.Join(t.TempDir(), "list")
	if output, err := pack(t, nil, "077", to, "LIST="+list); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	staged, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(staged)) {
		if mode, _, _ := strings.Cut(line, " "); mode != "755" && mode != "644" {
			t.Error("not for all users: ", line)
		}
	}
	info, err := os.Stat(filepath.Join(to, "jeoul_1_amd64.deb"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o644 {
		t.Errorf("the package has the mode %v", info.Mode())
	}
}

// deps runs deps.sh for a package on a machine that has nothing but these stand-ins and what the script itself runs.
func deps(t *testing.T, programs map[string]string, environment ...string) (string, error) {
	t.Helper()
	bare := standIns(t, programs)
	for _, name := range strings.Fields("awk bash cat dirname env head sed sort uname") {
		if err := os.Symlink(testenv.Program(t, name), filepath.Join(bare, name)); err != nil {
			t.Fatal(err)
		}
	}
	command := bash(t, bare, "exec scripts/deps.sh package")
	command.Env = append(append(command.Env, "PATH="+bare), environment...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// TestPackageNeeds: before a package is made, deps.sh installs what package.sh runs, and no server.
func TestPackageNeeds(t *testing.T) {
	text, err := deps(t, map[string]string{"go": "echo devel"})
	if err == nil || !strings.Contains(text, "there is no apt-get here") {
		t.Fatalf("error %v\n%s", err, text)
	}
	for _, name := range []string{"clang", "llvm", "git", "xz-utils"} {
		if !strings.Contains(text, "\n  "+name+" ") {
			t.Errorf("%s is not missing:\n%s", name, text)
		}
	}
	if strings.Contains(text, "apache2") {
		t.Errorf("a package needs none of the laboratory's programs:\n%s", text)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?m)^([a-z-]+):(.*)\n\t.* scripts/package\.sh `)
	found := rule.FindAllStringSubmatch(string(makefile), -1)
	if len(found) < 4 {
		t.Errorf("rules with package.sh: %q", found)
	}
	for _, match := range found {
		if !strings.HasPrefix(match[2], " deps-package ") {
			t.Errorf("make %s does not begin with deps-package:%s", match[1], match[2])
		}
	}
}

// TestProxyOfApt: sudo passes no variables on; apt-get gets the user's proxies.
func TestProxyOfApt(t *testing.T) {
	text, err := deps(t, map[string]string{
		"go": "echo devel", "id": "echo 1000", "apt-get": "exit 1",
		"sudo": `[ "$1" = -n ] || echo "as root: $*"`,
	}, "http_proxy=http://proxy:3128", "https_proxy=", "no_proxy=.example")
	if err != nil || !regexp.MustCompile(
		`as root: .* http_proxy=http://proxy:3128 no_proxy=\.example \S*/apt-install\.sh .*xz-utils`).MatchString(text) {
		t.Errorf("error %v\n%s", err, text)
	}
}

// machines stand for what test-packages.sh makes containers of: that of the BROKENth release does not boot. A process
// that they find is the stand-in of a container, because the script kills it.
var machines = map[string]string{
	"id":         "echo 0",
	"mmdebstrap": `for tree; do :; done; tar --create --file "$tree" --files-from /dev/null`,
	"dpkg-deb": `case $1 in
-R) mkdir "$3" "$3/DEBIAN" && echo "Version: 1" >"$3/DEBIAN/control" && echo >>"$PREPARED" ;;
esac`,
	"install":        "",
	"cp":             "",
	"systemd-nspawn": `[ "$(wc -l <"$PREPARED")" != "$BROKEN" ] && exec sleep 100`,
	"pgrep":          `echo "$2"`,
	"nsenter": `case $* in
*is-system-running) [ "$(wc -l <"$PREPARED")" != "$BROKEN" ] && echo running ;;
*try-packages) echo "packages ended with 0" ;;
esac`,
}

// TestPackagesOfEachRelease: a release whose container does not boot has failed, and is no part of the next one.
func TestPackagesOfEachRelease(t *testing.T) {
	for broken, says := range []string{"", "failed on: bookworm\n", "failed on: trixie\n"} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			dir, work := standIns(t, machines), t.TempDir()
			command := bash(t, dir, "exec scripts/test-packages.sh /dev/null")
			command.Env = append(command.Env, "PREPARED="+filepath.Join(work, "prepared"), "XDG_CACHE_HOME="+work,
				fmt.Sprint("BROKEN=", broken))
			text, err := command.CombinedOutput()
			if (err != nil) != (broken > 0) || !strings.Contains(string(text), says) ||
				strings.Contains(string(text), "cannot") {
				t.Errorf("error %v, want %q\n%s", err, says, text)
			}
		})
	}
}

// TestHangup: what a script does at Ctrl-C, it also does when the terminal is gone.
func TestHangup(t *testing.T) {
	files, err := filepath.Glob("*.sh")
	if err != nil {
		t.Fatal(err)
	}
	traps := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^\s*trap .* INT\b.*$`).FindAllString(string(text), -1) {
			traps++
			if !strings.Contains(line, " HUP") {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
	if traps == 0 {
		t.Error("no script has a trap")
	}
}

// repeat runs repeat-test.sh twice with a stand-in of make; the second run has stopped tests and nothing else.
func repeat(t *testing.T, makes string) (output string, err error) {
	t.Helper()
	// Bash's numbers depend on its version.
	seed, err := bash(t, t.TempDir(), `for ((seed = 0; ; seed++)); do
	RANDOM=$((seed + 2))
	if ((RANDOM % 7 + 1 == 4)); then echo $seed; exit; fi
done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	// It stops processes only below make. The stand-in of sudo gives no rights: none are needed here.
	dir := standIns(t, map[string]string{"make": makes, "sudo": `exec "$@"`, "sleep": ""})
	command := bash(t, dir, "exec scripts/repeat-test.sh")
	command.Env = append(command.Env, "RUNS=2", "SEED="+strings.TrimSpace(string(seed)), "KEEP="+t.TempDir())
	text, err := command.CombinedOutput()
	return string(text), err
}

// TestStoppedTests: a run with stopped tests has passed only if a test was stopped.
func TestStoppedTests(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		text, err := repeat(t, "true")
		if err == nil || !strings.Contains(text, "1 passed, 1 failed") {
			t.Errorf("error %v\n%s", err, text)
		}
	})
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		testenv.Program(t, "ps")
		text, err := repeat(t, `if mkdir "$KEEP/first" 2>/dev/null; then exit; fi
ln -s "$(PATH=/usr/bin:/bin command -v sleep)" "$KEEP/a.test"
"$KEEP/a.test" 100 &
until [ -s "$KEEP/2.stops" ]; do :; done
kill -KILL $!
wait || true`)
		if err != nil || !strings.Contains(text, "2 passed, 0 failed") ||
			!regexp.MustCompile(`stopped tests \([1-9]`).MatchString(text) {
			t.Errorf("error %v\n%s", err, text)
		}
	})
}

// fetch runs a function of debian.sh with stand-ins for apt and dpkg, and returns its cache.
func fetch(t *testing.T, programs map[string]string, call string) (cache, output string, err error) {
	t.Helper()
	cache = t.TempDir()
	all := map[string]string{
		"apt-get": "",
		"apt-cache": `case $1 in
depends)
	if [ "$LC_ALL" = C ]; then word=Depends; else word='Hängt ab von'; fi
	echo "  $word: linux-image-6.1.0-1-cloud-amd64" ;;
show) echo "Version: 6.1.1-1" ;;
esac`,
		"dpkg-deb": "",
	}
	for name, text := range programs {
		all[name] = text
	}
	command := bash(t, standIns(t, all), `set -euo pipefail
. scripts/lib.sh
. scripts/debian.sh
cache=$1 arch=amd64
fetched=$(`+call+`)
printf '%s\n' "$fetched"`, cache)
	text, err := command.CombinedOutput()
	return cache, string(text), err
}

// TestBrokenDownload: a download of a kernel or of programs that breaks off is no complete one at the next run.
func TestBrokenDownload(t *testing.T) {
	for name, programs := range map[string]map[string]string{
		"apt-get":  {"apt-get": `case "$*" in *download*) exit 100 ;; esac`},
		"dpkg-deb": {"dpkg-deb": "exit 2"},
	} {
		for _, call := range []string{"fetch_kernel bookworm", "fetch_root bookworm busybox-static"} {
			t.Run(name+"/"+call, func(t *testing.T) {
				cache, output, err := fetch(t, programs, call)
				if err == nil {
					t.Errorf("no error:\n%s", output)
				}
				if found, _ := filepath.Glob(filepath.Join(cache, "*", "complete")); len(found) > 0 {
					t.Errorf("%s exists", found)
				}
			})
		}
	}
}

// TestFetchKernel: the newest kernel of a suite is found and unpacked, in any language of the user.
func TestFetchKernel(t *testing.T) {
	cache, output, err := fetch(t, nil, "fetch_kernel bookworm")
	dir := filepath.Join(cache, "linux-image-6.1.0-1-cloud-amd64-6.1.1-1")
	if err != nil || output != dir+"\n" {
		t.Errorf("%s error %v, want %s", output, err, dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "complete")); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	_, output, err = fetch(t, map[string]string{"apt-cache": ""}, "fetch_kernel bookworm")
	if err == nil || !strings.Contains(output, "bookworm has no linux-image-cloud-amd64") {
		t.Errorf("%s error %v", output, err)
	}
}
