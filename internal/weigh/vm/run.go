// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/u-root/u-root/pkg/cpio"
)

// Machine is a machine to run.
type Machine struct {
	Kernel      *Kernel
	Accelerator Accelerator
	// Executable is the path of the jeoul binary.
	Executable string
	// Worker is the path of another jeoul binary that does the job, such as that of another commit; where it is empty,
	// Executable does it.
	Worker string
	// Other is the path of another build, for a job that upgrades to it and back. The machine has it at [OtherPath]; if
	// Other is empty, the machine has none.
	Other string
	Job   Job
	// Files are put into the machine, by their paths below [Job.Path].
	Files map[string][]byte
	// Limit is how long the machine may run; 0 is forever.
	Limit time.Duration
	// Hello, Line and Result are called when the machine reports, one at a time: with its description, with a line that
	// the job printed, and with the file that the job leaves, in its present state. An error of Result ends the
	// machine.
	Hello  func(Hello)
	Line   func(string)
	Result func([]byte) error
}

// Job is a machine's job.
type Job struct {
	// Args are the arguments of jeoul.
	Args []string `json:"args"`
	// Result is the path of the file that is sent to the outside whenever the job prints a line, and at its end, if the
	// file has changed.
	Result string `json:"result"`
	// Prints: the file is the job's standard output; it exists, and is sent, at the job's end.
	Prints bool `json:"prints,omitempty"`
}

// JobPath returns the path in the machine of a file of Machine.Files.
func JobPath(name string) string { return filepath.Join(jobDir, name) }

// Hello is a machine's description of itself.
type Hello struct {
	// Kernel is the version of its kernel, Clock its clock source.
	Kernel string `json:"kernel"`
	Clock  string `json:"clock"`
	// Missing are modules that could not be loaded.
	Missing []string `json:"missing,omitempty"`
}

// End is how a job ended.
type End struct {
	// Status is the exit status of jeoul, or 128 and the number of the signal that ended it.
	Status int `json:"status"`
	// Error is the reason why the job could not be started at all.
	Error string `json:"error,omitempty"`
}

// Bounds of a machine, generous for an emulated one on a busy host.
const (
	bootTimeout = 5 * time.Minute
	// endTimeout is how long an interrupted job may take to end.
	endTimeout = 2 * time.Minute
	// offTimeout is how long a machine may take to switch itself off.
	offTimeout = 20 * time.Second
)

// Run runs the machine until its job has ended, and returns how it ended. If ctx ends, or the limit is reached, the job
// is interrupted and may end in an orderly way; the error is then ctx's, or wraps ErrLimit. The error wraps ErrMachine
// where the machine failed. The machine is gone in any case.
func Run(ctx context.Context, m Machine) (End, error) {
	dir, err := os.MkdirTemp("", "jeoul-vm-")
	if err != nil {
		return End{}, fmt.Errorf("making a place for the virtual machine: %w", err)
	}
	end, err := m.run(ctx, dir)
	return end, errors.Join(err, os.RemoveAll(dir))
}

func (m Machine) run(ctx context.Context, dir string) (End, error) {
	for _, path := range []string{m.Executable, m.Worker, m.Other} {
		if path == "" {
			continue
		}
		if err := m.Kernel.Arch.CheckProgram(path); err != nil {
			return End{}, err
		}
	}
	initramfs := filepath.Join(dir, "initramfs")
	if err := m.writeImage(initramfs); err != nil {
		return End{}, err
	}
	// QEMU connects to the port, so that this process need not wait for QEMU.
	port, err := net.Listen("unix", filepath.Join(dir, "port"))
	if err != nil {
		return End{}, fmt.Errorf("making the virtual machine's port: %w", err)
	}
	defer port.Close()
	args := append(m.Accelerator.arguments(m.Kernel, "rdinit="+jeoulPath+" -- bench init"), "-initrd", initramfs,
		"-device", "virtio-serial-pci", "-chardev", "socket,id=port,path="+port.Addr().String(),
		"-device", "virtserialport,chardev=port,name="+portName)
	lost, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	s := &session{machine: m, command: qemu(lost, m.Kernel.Arch, args), kill: kill, gone: make(chan struct{})}
	s.command.Stdout, s.command.Stderr = &s.console, &s.console
	if err := s.command.Start(); err != nil {
		return End{}, fmt.Errorf("starting the virtual machine: %w", err)
	}
	go func() {
		s.err = s.command.Wait()
		close(s.gone)
		port.Close() // ends a waiting Accept
	}()
	end, err := s.serveMachine(ctx, port)
	s.awaitPowerOff(err == nil)
	return end, err
}

func (m Machine) writeImage(path string) error {
	im, err := newImage(m.Executable, m.Kernel)
	if err != nil {
		return fmt.Errorf("making the virtual machine's file system: %w", err)
	}
	for _, build := range []struct{ path, as string }{{m.Worker, workerPath}, {m.Other, OtherPath}} {
		if build.path == "" {
			continue
		}
		if err := im.fileAs(build.path, build.as); err != nil {
			return fmt.Errorf("putting another jeoul into the virtual machine: %w", err)
		}
	}
	job, err := json.Marshal(m.Job)
	if err != nil {
		return fmt.Errorf("writing the virtual machine's job: %w", err)
	}
	im.dir(jobDir)
	im.add(cpio.StaticFile(jobPath, string(job), 0o644))
	for name, content := range m.Files {
		im.text(JobPath(name), string(content))
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the virtual machine's file system: %w", err)
	}
	return errors.Join(im.write(f), f.Close())
}

// session is a running machine.
type session struct {
	machine Machine
	command *exec.Cmd
	console console
	kill    func()
	// gone is closed when QEMU has ended, with err.
	gone chan struct{}
	err  error
	// stopped is the reason why the job was interrupted.
	mu      sync.Mutex
	stopped error
}

// serveMachine reads the machine's frames until its job has ended.
func (s *session) serveMachine(ctx context.Context, port net.Listener) (End, error) {
	conn, err := port.Accept()
	if err != nil {
		<-s.gone
		return End{}, s.failed("it could not be started")
	}
	defer conn.Close()
	frames := NewReader(conn)
	booting := time.AfterFunc(bootTimeout, s.kill)
	hello, err := frames.Next()
	if err != nil || hello.Kind != FrameHello {
		return End{}, s.failedToBoot(ctx, booting.Stop())
	}
	booting.Stop()
	if err := s.hello(hello); err != nil {
		return End{}, err
	}
	defer s.watch(ctx, conn)()
	for {
		frame, err := frames.Next()
		if err != nil {
			return End{}, s.ended(err)
		}
		if frame.Kind == FrameEnd {
			return s.end(frame)
		}
		if err := s.take(frame); err != nil {
			return End{}, err
		}
	}
}

func (s *session) hello(frame Frame) error {
	var hello Hello
	if err := json.Unmarshal(frame.Payload, &hello); err != nil {
		return fmt.Errorf("%w: what it says of itself cannot be read: %v", ErrMachine, err)
	}
	s.machine.Hello(hello)
	return nil
}

func (s *session) take(frame Frame) error {
	switch frame.Kind {
	case FrameLine:
		s.machine.Line(string(frame.Payload))
	case FrameResult:
		return s.machine.Result(frame.Payload)
	default:
		return fmt.Errorf("%w: a frame of kind %c came in the middle of its job", ErrMachine, frame.Kind)
	}
	return nil
}

// end decodes how the job ended.
func (s *session) end(frame Frame) (End, error) {
	var end End
	if err := json.Unmarshal(frame.Payload, &end); err != nil {
		return End{}, fmt.Errorf("%w: how its job ended cannot be read: %v", ErrMachine, err)
	}
	if why := s.why(); why != nil {
		return end, why
	}
	if end.Error != "" {
		return end, fmt.Errorf("%w: %s", ErrMachine, end.Error)
	}
	return end, nil
}

// watch interrupts the job when ctx ends or the limit is reached, and kills the machine if that does not help. It ends
// when the returned function is called.
func (s *session) watch(ctx context.Context, conn io.Writer) (stop func()) {
	done := make(chan struct{})
	var limit <-chan time.Time
	if s.machine.Limit > 0 {
		timer := time.NewTimer(s.machine.Limit)
		limit = timer.C
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	go func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
			s.stop(ctx.Err())
		case <-limit:
			s.stop(fmt.Errorf("%w: %v", ErrLimit, s.machine.Limit))
		}
		timer := time.NewTimer(endTimeout)
		defer timer.Stop()
		if err := WriteFrame(conn, Frame{Kind: FrameInterrupt}); err != nil {
			s.kill()
		}
		select {
		case <-done:
		case <-timer.C:
			s.kill()
		}
	}()
	return func() { close(done) }
}

func (s *session) stop(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = why
}

// why returns the error for which the job was interrupted; nil if it was not.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// ended returns the reason why the connection to the machine ended in the middle of its job.
func (s *session) ended(err error) error {
	if why := s.why(); why != nil {
		return fmt.Errorf("%w; its job did not end within %v, so the virtual machine was killed", why, endTimeout)
	}
	if errors.Is(err, ErrFrame) {
		return fmt.Errorf("%w: %w", ErrMachine, err)
	}
	return s.failed("it ended in the middle of its job")
}

// failedToBoot returns the reason why a machine that was started sent nothing.
func (s *session) failedToBoot(ctx context.Context, inTime bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !inTime:
		return s.failed(fmt.Sprintf("it did not boot within %v", bootTimeout))
	}
	return s.failed("it did not boot")
}

// failed returns an error with the end of the console's text.
func (s *session) failed(what string) error {
	s.kill()
	<-s.gone
	words := lastOutput(s.console.bytes())
	if words == "" {
		words = "nothing"
	}
	return fmt.Errorf("%w: %s (%v); the last lines of its console: %s", ErrMachine, what, s.err, words)
}

// awaitPowerOff waits until the machine has switched itself off, or kills it.
func (s *session) awaitPowerOff(byItself bool) {
	if byItself {
		timer := time.NewTimer(offTimeout)
		defer timer.Stop()
		select {
		case <-s.gone:
			return
		case <-timer.C:
		}
	}
	s.kill()
	<-s.gone
}

// console keeps the end of the text on a machine's console.
type console struct {
	mu   sync.Mutex
	kept []byte
}

func (c *console) Write(data []byte) (int, error) {
	const most = 4 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, data...)
	c.kept = c.kept[max(len(c.kept)-most, 0):]
	return len(data), nil
}

func (c *console) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), c.kept...)
}
