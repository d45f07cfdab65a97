// SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/local"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// inside names the environment variable that a process in the tests' control group has, with its
// directory.
const inside = "JEOUL_TEST_LOCAL_CGROUP"

// TestMain runs the tests in a process in a control group of its own, for programs are attached to that:
// a socket is of the control group of the process that opens it.
func TestMain(m *testing.M) {
	root, err := local.Cgroup("")
	if err != nil && os.Geteuid() == 0 && os.Getenv("JEOUL_TEST_ROOT") != "" {
		fmt.Fprintln(os.Stderr, "these tests need a cgroup v2 hierarchy:", err)
		os.Exit(1)
	}
	if os.Getenv(inside) != "" || os.Geteuid() != 0 || err != nil {
		os.Exit(m.Run())
	}
	code, err := runInCgroup(filepath.Join(root, testenv.CgroupPrefix()+strconv.Itoa(os.Getpid())))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runInCgroup runs this program again in a control group, which it makes and removes.
func runInCgroup(dir string) (code int, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	cgroup, err := os.Open(dir)
	if err != nil {
		return 1, err
	}
	defer cgroup.Close()
	// By its path: a process that runs /proc/self/exe is named exe, and test-repeat would never stop it.
	executable, err := os.Executable()
	if err != nil {
		return 1, err
	}
	again := exec.Command(executable, os.Args[1:]...)
	again.Env = append(os.Environ(), inside+"="+dir)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Pdeathsig: unix.SIGKILL}
	err = again.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
