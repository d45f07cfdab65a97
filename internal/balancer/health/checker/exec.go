// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const (
	// programs is how many run at a time.
	programs = 32
	// outputBytes is how much of a program's output is kept: the reason of a failed check quotes it.
	outputBytes = 4 << 10
	// closing is how long a program's output may stay open when it has ended: it has children
	// that left its process group.
	closing = 100 * time.Millisecond
)

// slots has room for the programs that run. One that cannot be killed, for it waits for a disk, keeps its slot, also if
// it is a child of a check's program.
var slots = make(chan struct{}, programs)

// exec runs a program, and kills it and its process group when the time is over.
func (a *ask) exec() health.Answer {
	if a.check.Exec == nil || len(a.check.Exec.Command) == 0 {
		return health.Trouble("no program", "is not asked: the check names no program")
	}
	within := a.check.Timeout
	if deadline, ok := a.ctx.Deadline(); ok {
		within = time.Until(deadline) / 2 // see health.Checker
	}
	if !awaitTurn(a.ctx, within) {
		return health.Trouble("too many programs",
			fmt.Sprintf("is not asked: %d programs of checks ran all the time", programs))
	}
	p, err := a.launch()
	if err != nil {
		<-slots
		return trouble(fmt.Errorf("starting %s: %w", a.check.Exec.Command[0], err))
	}
	a.step("run", fmt.Sprintf("started %s as process %d", a.check.Exec.Command[0], p.command.Process.Pid), false)
	if !awaitEnd(a.ctx, p.done, within) {
		p.kill()
		// It is dead at once, unless it waits in the kernel.
		select {
		case <-p.done:
		case <-time.After(closing):
		}
		return health.Answer{Outcome: health.Failed, Silent: true, Text: "killed", Reason: fmt.Sprintf(
			"lets %s run for longer than %s", plain(a.check.Exec.Command[0]), a.check.Timeout)}
	}
	return evaluateExit(p.command.Args[0], p.err, p.output.line())
}

// awaitTurn waits for a slot for so long at most, and reports whether it has taken one.
func awaitTurn(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// awaitEnd waits for so long at most until a program has ended, and reports whether it has.
func awaitEnd(ctx context.Context, done <-chan struct{}, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// program is a program that runs, in a process group of its own.
type program struct {
	command *exec.Cmd
	output  output
	mark    string // in its environment, and in that of whatever it starts
	done    chan struct{}
	err     error // when done

	mu     sync.Mutex
	reaped bool
}

func (a *ask) launch() (*program, error) {
	command := a.check.Exec.Command
	p := &program{command: exec.Command(command[0], command[1:]...), done: make(chan struct{})}
	p.command.Dir = "/"
	p.mark = "JEOUL_CHECK=" + rand.Text()
	p.command.Env = append(a.environment(), p.mark)
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.command.WaitDelay = closing
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go p.wait()
	return p, nil
}

// environment has the variables that a program may need, and none of ours.
func (a *ask) environment() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/",
		"JEOUL_ADDRESS=" + a.endpoint.Address.String(), "JEOUL_PORT=" + strconv.Itoa(int(a.endpoint.Port)),
	}
	if a.endpoint.Via == lb.ViaVIP {
		env = append(env, "JEOUL_BACKEND="+a.endpoint.Backend.Address.String())
	}
	return env
}

// wait waits for the program's end, kills the rest of its group, and reaps it: in that order, for until then its
// number, and with it the group's, is no other's.
func (p *program) wait() {
	pid := p.command.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	unix.Kill(-pid, unix.SIGKILL)
	p.reaped = true
	p.mu.Unlock()
	if p.err = p.command.Wait(); errors.Is(p.err, exec.ErrWaitDelay) {
		killMarked(p.mark) // some of it left the group, and keeps the output open
	}
	close(p.done)
	reapGroup(pid)
	<-slots
}

// reapGroup reaps the processes that a program has left in its group, which were killed: as PID 1 of a container, this
// process is their parent now. A process has its new parent before its own can be reaped, so that none comes after the
// last.
func reapGroup(pgid int) {
	for {
		if _, err := unix.Wait4(-pgid, nil, 0, nil); err != nil && err != unix.EINTR {
			return
		}
	}
}

// kill ends the program and its process group.
func (p *program) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		unix.Kill(-p.command.Process.Pid, unix.SIGKILL)
	}
	killMarked(p.mark)
}

// killMarked kills the processes that have the mark in their environment: children that left the process group have it
// still. It looks again, because they may have had children meanwhile.
func killMarked(mark string) {
	const rounds = 3
	for range rounds {
		found := false
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || !slices.Contains(strings.Split(string(text), "\x00"), mark) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				found = unix.Kill(pid, unix.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}

// evaluateExit makes an answer of how a program ended.
func evaluateExit(name string, err error, line string) health.Answer {
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well, and something of it is still there
		err = nil
	}
	if err == nil {
		return health.Pass("exit code 0")
	}
	text := plain(err.Error())
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		text = fmt.Sprintf("exit code %d", exit.ExitCode())
	}
	reason := fmt.Sprintf("fails %s: %s", plain(name), text)
	if line != "" {
		reason += ", " + line
	}
	return health.Fail(text, reason)
}

// output keeps the beginning of a program's output, and swallows the rest.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (t *output) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := outputBytes - len(t.text); room > 0 {
		t.text = append(t.text, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

// line is the first line that says something.
func (t *output) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.Lines(t.text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return plain(string(line))
		}
	}
	return ""
}
