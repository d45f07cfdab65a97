// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Accelerator is the way in which a machine's instructions are executed.
type Accelerator string

// The accelerators.
const (
	// KVM: by the processor.
	KVM Accelerator = "kvm"
	// TCG: by translation, some ten times slower.
	TCG Accelerator = "tcg"
	// Counting is TCG on one processor with a clock that counts instructions.
	Counting Accelerator = "tcg-icount"
)

// Memory of a machine, in MiB. A machine that counts has the same memory on every host.
const (
	memory         = 4096
	countingMemory = 3072
)

// commandLine is the command line of the machine's kernel. Its console is kept in case it fails. Without a file system
// to start from, it ends immediately (panic=-1, and QEMU's -no-reboot).
const commandLine = "quiet loglevel=3 panic=-1"

// CPUs returns the number of the machine's processors.
func (a Accelerator) CPUs() int {
	if a == Counting {
		return 1
	}
	return runtime.NumCPU()
}

// arguments returns QEMU's arguments for a machine without devices other than a console.
func (a Accelerator) arguments(kernel *Kernel, appended string) []string {
	board := kernel.Arch.qemuMachine()
	args := append(slices.Clone(board.machine), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-monitor", "none", "-serial", "stdio")
	size := memory
	switch a {
	case KVM:
		args = append(args, "-accel", "kvm", "-cpu", "host")
	case Counting:
		size = countingMemory
		// With several threads, the processors' instructions would interleave by chance.
		args = append(args, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", board.cpu)
	default:
		args = append(args, "-accel", "tcg,thread=multi", "-cpu", board.cpu)
	}
	return append(args, "-smp", strconv.Itoa(a.CPUs()), "-m", strconv.Itoa(size)+"M",
		"-kernel", kernel.Image, "-append", strings.TrimSpace("console="+board.console+" "+commandLine+" "+appended))
}

// tryTimeout is how long a kernel may take to find that it has nothing to start.
const tryTimeout = 20 * time.Second

// Choose returns KVM if it works here, which only a trial can show, otherwise TCG, with the reason.
func Choose(ctx context.Context, kernel *Kernel) (Accelerator, string) {
	if !kernel.Arch.isOwn() {
		return TCG, fmt.Sprintf("this machine is %s, and the virtual one %s", Own(), kernel.Arch)
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return TCG, fmt.Sprintf("KVM cannot be used here (%v)", err)
	}
	f.Close()
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	output, err := qemu(ctx, kernel.Arch, KVM.arguments(kernel, "")).CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return TCG, fmt.Sprintf("with KVM the kernel did not boot within %v", tryTimeout)
	case err != nil:
		return TCG, fmt.Sprintf("KVM does not work here (%v: %s)", err, lastOutput(output))
	}
	return KVM, ""
}

// qemu prepares QEMU, in a separate process group, so that a terminal's Ctrl-C does not reach it. It ends with this
// process.
func qemu(ctx context.Context, arch Arch, args []string) *exec.Cmd {
	command := exec.CommandContext(ctx, arch.qemuMachine().qemu, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = time.Second
	return command
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

// Version returns the version of QEMU for an architecture. Its error wraps ErrMissing if QEMU is not installed, or
// ErrArch.
func Version(ctx context.Context, arch Arch) (string, error) {
	if err := arch.Check(); err != nil {
		return "", err
	}
	path, err := find(arch.qemuMachine().qemu)
	if err != nil {
		return "", fmt.Errorf("%w (Debian: %s)", err, arch.qemuMachine().debian)
	}
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	return versionNumber.FindString(string(output)), nil
}
