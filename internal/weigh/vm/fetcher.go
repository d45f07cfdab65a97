// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

type fetcher struct {
	ctx context.Context
	// dir is the directory for the kernel.
	dir, release string
	arch         Arch
	// work is the directory in which the kernel is made.
	work string
}

// command prepares a program that works with the release's package lists.
func (f fetcher) command(dir, program string, args ...string) *exec.Cmd {
	command := exec.CommandContext(f.ctx, program, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(f.work, "apt.conf"), "LC_ALL=C")
	return command
}

// run runs a program; the error includes the end of its output.
func (f fetcher) run(dir, program string, args ...string) error {
	output, err := f.command(dir, program, args...).CombinedOutput()
	if err != nil && f.ctx.Err() != nil {
		return f.ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args[:min(2, len(args))], " "), err, lastOutput(output))
	}
	return nil
}

// lastOutput returns the end of a program's output, in one line.
func lastOutput(output []byte) string {
	const most = 600
	output = bytes.TrimSpace(output)
	return strings.Join(strings.Fields(string(output[max(len(output)-most, 0):])), " ")
}

// find returns the path of a program, even if only root's PATH contains it.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is %w: run `make deps-vm`, or install it from your distribution", program, ErrMissing)
}
