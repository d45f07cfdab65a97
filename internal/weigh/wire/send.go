// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// sender is the thread that makes the kernel send frames.
type sender struct {
	program *ebpf.Program
	control *bpfWireControl
	batch   int
	cpu     int
	polite  bool

	thread atomic.Int32
	done   chan error
}

// start begins to send. The caller must call stop.
func (s *sender) start() {
	atomic.StoreUint32(&s.control.Stopped, 0)
	s.done = make(chan error, 1)
	go func() { s.done <- s.run() }()
}

// ready waits until the first frame was made.
func (s *sender) ready(ctx context.Context, progress *bpfWireProgress, was uint32) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for atomic.LoadUint32(&progress.Runs) == was {
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case err := <-s.done:
			// The caller that stops the sender reads the error again.
			s.done <- err
			return err
		case <-ticker.C:
		}
	}
	return nil
}

// stop ends sending, and returns the sender's error.
func (s *sender) stop() error {
	atomic.StoreUint32(&s.control.Stopped, 1)
	// The call ends after some milliseconds of frames that are not sent, or immediately on a signal: Go's runtime uses
	// SIGURG itself, and ignores an extra one.
	if thread := s.thread.Load(); thread != 0 {
		_ = unix.Tgkill(os.Getpid(), int(thread), unix.SIGURG)
	}
	return <-s.done
}

// run sends until it is stopped, on a thread that ends with it. The call lasts as long as possible, because each call
// begins and ends with a grace period of RCU, some ten milliseconds in which nothing is sent.
func (s *sender) run() error {
	runtime.LockOSThread()
	if s.cpu >= 0 {
		var set unix.CPUSet
		set.Set(s.cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("tying the sender to CPU %d: %w", s.cpu, err)
		}
	}
	// A thread that waits for a core begins connections late. Without the right to raise its priority, it may have to
	// wait; a step reports whether the tester has kept up.
	if !s.polite {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	}
	s.thread.Store(int32(unix.Gettid()))
	defer s.thread.Store(0)
	for atomic.LoadUint32(&s.control.Stopped) == 0 {
		err := sendFrames(s.program.FD(), s.batch)
		switch {
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL):
			return fmt.Errorf("%w: %v", ErrKernel, err)
		default:
			return fmt.Errorf("sending: %w", err)
		}
	}
	return nil
}

// burst is the number of frames that a call makes, if no signal ends it. After a stop, each remaining frame takes some
// 60 ns: a fraction of a second, should the signal have come too early.
const burst = 1 << 24

// shortest is the length of the frames that the sender is given, in bytes.
const shortest = 60

// sendFrames runs a program with live frames. The library's Program.Run restarts the call when a signal ends it;
// sendFrames returns EINTR.
func sendFrames(program, batch int) error {
	frame := make([]byte, shortest)
	// union bpf_attr for BPF_PROG_TEST_RUN, linux/bpf.h.
	attr := struct {
		program, result      uint32
		sizeIn, sizeOut      uint32
		in, out              uint64
		repeat, duration     uint32
		contextIn, contextTo uint32
		contexts             [2]uint64
		flags, cpu           uint32
		batch, _             uint32
	}{
		program: uint32(program), sizeIn: uint32(len(frame)), in: uint64(uintptr(unsafe.Pointer(&frame[0]))),
		repeat: burst, flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, batch: uint32(batch),
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr))
	runtime.KeepAlive(frame)
	if errno != 0 {
		return errno
	}
	return nil
}
