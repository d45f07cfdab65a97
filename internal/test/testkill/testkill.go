// SPDX-License-Identifier: Apache-2.0

// Package testkill kills a process of a test at a selected step: before a system call whose effect outlives the
// process. The kernel halts the process at each of these calls (seccomp's user notification), so a new call in the code
// under test becomes a new step without any code for the test. Writes to memory that a process shares with packets
// happen between two steps.
package testkill

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/unotify"
)

// Victim is a process that is halted at each step, and may be killed there.
type Victim struct {
	command  *exec.Cmd
	socket   *net.UnixConn
	listener int
	// counting: steps are counted. The process is killed before the step of number last.
	counting atomic.Bool
	last     int
	steps    []string
	killed   bool
	served   chan error
}

// Start starts a command whose process calls Report and then Begin, and returns when it has begun. The caller must call
// End.
func Start(command *exec.Cmd) (*Victim, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	command.Env = append(command.Environ(), envName+"=1")
	command.ExtraFiles = []*os.File{theirs}
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	// With this end closed, reading ends when the process does.
	theirs.Close()
	v := &Victim{command: command, socket: ours, listener: -1, served: make(chan error, 1)}
	if v.listener, err = unotify.Receive(ours); err == nil {
		go func() {
			err := v.serve()
			if err != nil {
				_ = v.command.Process.Kill() // nothing continues it
			}
			v.served <- err
		}()
		_, err = ours.Read(make([]byte, 1))
	} else {
		v.served <- nil
	}
	if err != nil {
		_, _, ended := v.End(0)
		return nil, fmt.Errorf("the process did not begin: %w", errors.Join(err, ended))
	}
	return v, nil
}

// End lets the process continue until it ends by itself or is killed before the step of number last, counted from 0. It
// returns the steps that the process has made.
func (v *Victim) End(last int) (steps []string, killed bool, err error) {
	v.last = last
	v.counting.Store(true)
	_, _ = v.socket.Write([]byte{0})
	// Without a report, nothing else ends the process.
	if v.listener < 0 {
		_ = v.command.Process.Kill()
	}
	// Before Linux 6.11 a process that has ended keeps its filter, and serve its listener, until it is waited for.
	ended := v.command.Wait()
	if err = <-v.served; !v.killed {
		err = errors.Join(err, ended)
	}
	err = errors.Join(err, v.socket.Close())
	if v.listener >= 0 {
		err = errors.Join(err, unix.Close(v.listener))
	}
	return v.steps, v.killed, err
}

// serve answers the kernel's requests until the process has ended.
func (v *Victim) serve() error {
	for {
		n, err := unotify.Next(v.listener)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if v.killed {
			continue
		}
		if v.counting.Load() {
			if len(v.steps) == v.last {
				v.killed = true
				if err := v.command.Process.Kill(); err != nil {
					return err
				}
				continue
			}
			v.steps = append(v.steps, describe(n))
		}
		unotify.Continue(v.listener, n)
	}
}

// EveryStep reports whether a test should go through all steps, and not only some.
func EveryStep() bool { return os.Getenv("JEOUL_TEST_EVERY_STEP") != "" }

// Some returns the numbers of the steps to kill before: all, or some random ones.
func Some(random *rand.Rand, steps, some int) []int {
	taken := random.Perm(steps)
	if !EveryStep() && some < steps {
		taken = taken[:some]
	}
	slices.Sort(taken)
	return taken
}
