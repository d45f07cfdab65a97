// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
)

const (
	// stopTimeout is how long a process may take to end after SIGTERM.
	stopTimeout = 5 * time.Second
	// outputDelay is how long the output of an ended process is still read: a daemon that it left behind may hold the
	// pipe open forever.
	outputDelay = time.Second
)

// Process is a program that was started on a host.
type Process struct {
	host *Host
	// name is the program as it was requested.
	name   string
	cmd    *exec.Cmd // nil where remote is set
	remote RemoteProcess
	done   chan struct{}
	// err is the result of Wait; it is set before done is closed.
	err error

	mu sync.Mutex
	// stopping: the rest of the group is ended with its leader.
	stopping bool
	// reaped: the PID may belong to another process by now.
	reaped bool
}

// Start runs a command on the host, in its own process group, or session. It is killed when this process dies, and
// stopped as by Stop when ctx ends. Processes that a command leaves behind after its end live until the lab is closed.
func (h *Host) Start(ctx context.Context, c Command) (*Process, error) {
	fail := func(err error) (*Process, error) {
		return nil, fmt.Errorf("start %s on %s: %w", c.Path, h.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if h.machine != nil {
		p, err := h.startRemote(ctx, c)
		if err != nil {
			return fail(err)
		}
		return p, nil
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, c.Dir, c.Stdout, c.Stderr
	if cmd.Dir == "" {
		cmd.Dir = h.Dir
	}
	cmd.WaitDelay = outputDelay
	// The leader of a session leads a group, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.Session, Setsid: c.Session, Pdeathsig: h.lab.deathSignal()}
	if h.cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(h.cgroup.Fd())
	}
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
		if _, err := unix.IoctlGetTermios(int(c.Stdin.Fd()), unix.TCGETS); err == nil {
			cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(c.Stdin.Fd())
		}
	}
	p := &Process{host: h, name: c.Path, cmd: cmd, done: make(chan struct{})}
	err := h.lab.usage.Started(p, func() error {
		return h.onKeeper(func() error { return startPinned(cmd, c.CPUs) })
	})
	if err != nil {
		return fail(err)
	}
	go p.await()
	stopAfter := context.AfterFunc(ctx, func() { p.Stop(context.Background()) })
	go func() {
		<-p.done
		stopAfter()
	}()
	return p, nil
}

// deathSignal is the signal that a process gets when this one dies. A lab of namespaces is removed completely; a
// machine remains, and programs on it must be able to undo their changes to it.
func (l *Lab) deathSignal() syscall.Signal {
	if l.local != nil {
		return syscall.SIGTERM
	}
	return syscall.SIGKILL
}

// startPinned starts a command from the calling thread, whose CPU affinity the command inherits: it is set before the
// program runs, so it holds from the first instruction.
func startPinned(cmd *exec.Cmd, cpus []int) error {
	if len(cpus) == 0 {
		return cmd.Start()
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read the CPU affinity: %w", err)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPUs %v: %w", cpus, err)
	}
	return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &before))
}

// await charges the process's CPU time to its host when it ends, then reaps it. Between the end and the reaping, no
// other process can get its PID and group.
func (p *Process) await() {
	defer close(p.done)
	usage := awaitExit(p.PID())
	p.host.lab.usage.Ended(p, usage)
	p.mu.Lock()
	if p.stopping {
		unix.Kill(-p.PID(), unix.SIGKILL)
	}
	p.reaped = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		p.err = fmt.Errorf("%s on %s: %w", filepath.Base(p.cmd.Path), p.host.Name, err)
	}
}

// awaitExit blocks until a child has ended, leaves it unreaped, and returns the CPU time of the child and of those of
// its descendants that were waited for.
func awaitExit(pid int) time.Duration {
	var usage unix.Rusage
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, &usage)
		if err != unix.EINTR {
			break
		}
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// PID returns the process's ID, which is also the ID of its group.
func (p *Process) PID() int {
	if p.remote != nil {
		return p.remote.PID()
	}
	return p.cmd.Process.Pid
}

// Done is closed when the process has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait blocks until the process has ended. Its error wraps an *exec.ExitError
// where the program failed or was killed.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process, not to its group. It returns
// os.ErrProcessDone after the process has ended.
func (p *Process) Signal(s os.Signal) error {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %s on %s: unknown signal %v", p.name, p.host.Name, s)
	}
	if p.remote != nil {
		return p.remote.Signal(int(sig))
	}
	return p.kill(p.PID(), sig)
}

func (p *Process) kill(id int, sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	return unix.Kill(id, sig)
}

// Stop ends the process and its group: by SIGTERM, and by SIGKILL if the process still exists after five seconds or
// when ctx ends. It returns an error only if the process outlives that. Stopping an ended process does nothing.
func (p *Process) Stop(ctx context.Context) error {
	if p.remote != nil {
		return p.remote.Stop(ctx)
	}
	if p.end(ctx, syscall.SIGTERM) {
		return nil
	}
	return p.destroy()
}

// Kill ends the process and its group as a crash does: by SIGKILL, without a signal before. It returns when the process
// is gone. Killing an ended process does nothing.
func (p *Process) Kill(ctx context.Context) error {
	if p.remote == nil {
		return p.destroy()
	}
	if err := p.remote.Signal(int(syscall.SIGKILL)); err != nil {
		return err
	}
	select {
	case <-p.remote.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// destroy kills the process and its group and waits for the end.
func (p *Process) destroy() error {
	if p.end(context.Background(), syscall.SIGKILL) {
		return nil
	}
	return fmt.Errorf("stop %s on %s: process %d is still there %v after SIGKILL",
		p.name, p.host.Name, p.PID(), stopTimeout)
}

// end signals the process and its group to end, and waits until the process has ended; false if it still exists after
// stopTimeout or when ctx ends.
func (p *Process) end(ctx context.Context, sig syscall.Signal) bool {
	p.signalEnd(sig)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// signalEnd signals the process and its group to end. A process that has already ended is no error.
func (p *Process) signalEnd(sig syscall.Signal) {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.kill(-p.PID(), sig)
}

// HostName is the name of the process's host.
func (p *Process) HostName() string { return p.host.Name }

// processes returns the processes that were started and have not ended.
func (l *Lab) processes() (all []*Process) {
	for _, p := range l.usage.Processes() {
		all = append(all, p.(*Process))
	}
	return all
}

// CPUTime returns the CPU time of the process itself by its CPU clock, including its ended threads and the packet work
// that ran on top of it. It returns an error once the process has ended.
func (p *Process) CPUTime() (time.Duration, error) {
	used, err := runTask(processClockTask, p.host, p.PID())
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %s on %s: %w", p.name, p.host.Name, err)
	}
	return used, nil
}

var processClockTask = NewTask("process-clock", func(_ context.Context, _ *Host, pid int) (time.Duration, error) {
	return measure.ProcessClock(pid)
})

// startRemote runs a command on another machine.
func (h *Host) startRemote(ctx context.Context, c Command) (*Process, error) {
	if c.Dir == "" {
		c.Dir = h.Dir
	}
	p := &Process{host: h, name: c.Path, done: make(chan struct{})}
	var err error
	if p.remote, err = h.machine.Start(ctx, c); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		<-p.remote.Done()
		p.err = p.remote.Wait()
	}()
	stopAfter := context.AfterFunc(ctx, func() { p.Stop(context.Background()) })
	go func() {
		<-p.done
		stopAfter()
	}()
	return p, nil
}
