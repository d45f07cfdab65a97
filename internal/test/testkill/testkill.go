// SPDX-License-Identifier: Apache-2.0

// Package testkill kills a process of a test at a step of its choice: before a system call whose
// effect outlives the process. Which calls those are is told to the kernel, which halts the process at
// each of them (seccomp's user notification), so a new step in the code under test is a new step of
// the walk, without a word in that code. What a process writes to memory that it shares with packets is
// between two steps.
package testkill

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Victim is a process that is halted at each step, and may be killed there.
type Victim struct {
	command  *exec.Cmd
	socket   *net.UnixConn
	listener int
	// counting: steps are counted from now on, and before the step of number last it is killed.
	counting atomic.Bool
	last     int
	steps    []string
	killed   bool
	served   chan error
}

// Start starts a command whose process calls Report and then Begin, and returns when it has begun.
// End must be called.
func Start(command *exec.Cmd) (*Victim, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	command.Env = append(command.Environ(), told+"=1")
	command.ExtraFiles = []*os.File{theirs}
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	// With it, reading ends when the process does.
	theirs.Close()
	v := &Victim{command: command, socket: ours, listener: -1, served: make(chan error, 1)}
	if v.listener, err = receive(ours); err == nil {
		go func() {
			err := v.serve()
			if err != nil {
				_ = v.command.Process.Kill() // nothing lets it go on
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

// End lets the process go on until it ends by itself or is killed before the step of number last, the
// first one of which is 0. It returns the steps that the process has done.
func (v *Victim) End(last int) (steps []string, killed bool, err error) {
	v.last = last
	v.counting.Store(true)
	_, _ = v.socket.Write([]byte{0})
	// If it never came to report, nothing else ends it.
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

// notice is struct seccomp_notif of the kernel's include/uapi/linux/seccomp.h, and answer is struct
// seccomp_notif_resp.
type (
	notice struct {
		id         uint64
		pid, flags uint32
		call       callData
	}
	answer struct {
		id    uint64
		value int64
		err   int32
		flags uint32
	}
	// callData is struct seccomp_data.
	callData struct {
		number   int32
		arch     uint32
		pointer  uint64
		argument [6]uint64
	}
)

// serve answers the kernel's questions until the process is gone.
func (v *Victim) serve() error {
	for {
		poll := []unix.PollFd{{Fd: int32(v.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for a step: %w", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
				return nil
			}
			continue
		}
		var n notice
		if err := ioctl(v.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
			continue // its thread has given up: a signal, or the end
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
			v.steps = append(v.steps, describe(&n))
		}
		_ = ioctl(v.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}))
	}
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// EveryStep says whether a test is to walk through all steps, and not only through some.
func EveryStep() bool { return os.Getenv("JEOUL_TEST_EVERY_STEP") != "" }

// Some returns the numbers of the steps to kill before: all, or as many as the caller asks for, at random.
func Some(random *rand.Rand, steps, some int) []int {
	taken := random.Perm(steps)
	if !EveryStep() && some < steps {
		taken = taken[:some]
	}
	slices.Sort(taken)
	return taken
}
