// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// machineArch is the architecture that JEOUL_TEST_VM_ARCH names, or this machine's own.
func machineArch() Arch {
	if arch := Arch(os.Getenv("JEOUL_TEST_VM_ARCH")); arch != "" {
		return arch
	}
	return Own()
}

// TestMachine boots a machine that prints its version, if JEOUL_TEST_VM is set: it downloads a kernel, and takes a
// minute on a busy host.
func TestMachine(t *testing.T) {
	if os.Getenv("JEOUL_TEST_VM") == "" {
		t.Skip("JEOUL_TEST_VM is not set")
	}
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := Fetch(t.Context(), cache, DefaultRelease, machineArch(), func(what string) { t.Log(what) })
	if err != nil {
		t.Fatal(err)
	}
	jeoul := filepath.Join(t.TempDir(), "jeoul")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", jeoul, "github.com/jeoul/jeoul/cmd/jeoul")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+string(machineArch()))
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var lines []string
	var hello Hello
	result := ""
	machine := Machine{
		Kernel: kernel, Accelerator: Counting, Executable: jeoul, Limit: 5 * time.Minute,
		Job:    Job{Args: []string{"version"}, Result: JobPath("note")},
		Files:  map[string][]byte{"note": []byte("brought back")},
		Hello:  func(h Hello) { hello = h },
		Line:   func(line string) { lines = append(lines, line) },
		Result: func(content []byte) error { result = string(content); return nil },
	}
	end, err := Run(t.Context(), machine)
	if err != nil || end.Status != 0 {
		t.Fatalf("it ended with %+v, %v", end, err)
	}
	if len(hello.Missing) > 0 || hello.Kernel != kernel.Version {
		t.Errorf("it says of itself %+v", hello)
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "kernel  "+kernel.Version) {
		t.Errorf("its kernel is not %s: %s", kernel.Version, text)
	}
	if result != "brought back" {
		t.Errorf("what it left is %q", result)
	}

	// The complete output of a worker is the result, and is not sent as lines.
	lines, result = nil, ""
	machine.Worker, machine.Job = jeoul, Job{Args: []string{"version"}, Result: "/tmp/printed", Prints: true}
	end, err = Run(t.Context(), machine)
	if err != nil || end.Status != 0 {
		t.Fatalf("it ended with %+v, %v", end, err)
	}
	if !strings.Contains(result, "kernel  "+kernel.Version) || len(lines) > 0 {
		t.Errorf("what it printed is %q, and the lines are %q", result, lines)
	}
}

// TestOtherBuildsAreInTheMachine: the file system contains the jeoul that does the job, and the one that it upgrades
// to, besides the one that starts the job.
func TestOtherBuildsAreInTheMachine(t *testing.T) {
	if _, err := find(busyboxProgram); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	worker, other, image := filepath.Join(dir, "worker"), filepath.Join(dir, "other"), filepath.Join(dir, "image")
	write(t, worker, "the one that works")
	write(t, other, "the one to upgrade to")
	write(t, filepath.Join(dir, "modules", "modules.dep"), "")
	machine := Machine{Kernel: &Kernel{Dir: dir, Version: "1", Modules: filepath.Join(dir, "modules")},
		Executable: os.Args[0], Worker: worker, Other: other}
	if err := machine.writeImage(image); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	for path, build := range map[string]string{workerPath: "the one that works", OtherPath: "the one to upgrade to"} {
		// A record is a name that ends in zero bytes, and then the content.
		if !regexp.MustCompile(strings.TrimPrefix(path, "/") + `\x00+` + build).Match(content) {
			t.Errorf("the image has no %s with the content %q", path, build)
		}
	}
	for _, without := range []func(*Machine){
		func(m *Machine) { m.Worker = filepath.Join(dir, "none") },
		func(m *Machine) { m.Other = filepath.Join(dir, "none") },
	} {
		m := machine
		if without(&m); m.writeImage(image) == nil {
			t.Errorf("a file that is not there was put in: %q, %q", m.Worker, m.Other)
		}
	}
}

// TestMachineThatCannotStart: an invalid kernel ends with QEMU's message.
func TestMachineThatCannotStart(t *testing.T) {
	if _, err := find(Own().qemuMachine().qemu); err != nil {
		t.Skip(err)
	}
	if _, err := find(busyboxProgram); err != nil {
		t.Skip(err)
	}
	dir, temporary := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	write(t, filepath.Join(dir, "vmlinuz"), "no kernel")
	write(t, filepath.Join(dir, "modules", "modules.dep"), "")
	machine := Machine{
		Kernel: &Kernel{Dir: dir, Version: "1", Image: filepath.Join(dir, "vmlinuz"),
			Modules: filepath.Join(dir, "modules")},
		Accelerator: Counting, Executable: os.Args[0],
		Hello: func(Hello) {}, Line: func(string) {}, Result: func([]byte) error { return nil },
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	_, err := Run(ctx, machine)
	if !errors.Is(err, ErrMachine) {
		t.Fatalf("a machine without a kernel: %v", err)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
