// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Program is the process of a subject, and its output.
type Program struct {
	name string
	// Process is the process itself.
	Process *lab.Process
	output  tail
}

// StartProgram runs a program on a host. The program does not end with ctx, so that its subject can be stopped in
// order.
func StartProgram(ctx context.Context, host *lab.Host, path string, args ...string) (*Program, error) {
	return StartWithLog(ctx, host, nil, path, args...)
}

// StartWithLog is StartProgram with a function for the output: onLine is called with each line of stdout and stderr.
func StartWithLog(ctx context.Context, host *lab.Host, onLine func(line string), path string,
	args ...string) (*Program, error) {
	// Each program has a session of its own. A subject that starts daemons (jeoul's HAProxy) puts them in one, and the
	// kernel would otherwise schedule one subject with the bench and another one separately.
	return StartCommand(ctx, host, onLine, lab.Command{Path: path, Args: args, Session: true})
}

// StartCommand is StartWithLog for a command.
func StartCommand(ctx context.Context, host *lab.Host, onLine func(line string),
	command lab.Command) (*Program, error) {
	p := &Program{name: filepath.Base(command.Path)}
	p.output.onLine = onLine
	command.Stdout, command.Stderr = &p.output, &p.output
	var err error
	p.Process, err = host.Start(context.WithoutCancel(ctx), command)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// UpTimeout is how long a subject may take to start. Beside other work, the kernel alone takes some ten seconds to
// verify a program, and in an emulated machine everything is ten times slower. Only a subject that never starts takes
// the full time.
const UpTimeout = time.Minute

// WaitUntil polls ready until it returns nil, the program ends, or UpTimeout is over. The error wraps ErrNotUp and has
// the program's output.
func (p *Program) WaitUntil(ctx context.Context, ready func() error) error {
	bounded, cancel := context.WithTimeout(ctx, UpTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.Process.Done():
			return fmt.Errorf("%w: %w%s", ErrNotUp, cmp.Or(p.Process.Wait(), errors.New(p.name+" ended by itself")),
				p.LastOutput())
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w within %v: %w%s", ErrNotUp, UpTimeout, err, p.LastOutput())
		case <-tick.C:
		}
	}
}

// Stop ends the program; nil means a program that was never started.
func (p *Program) Stop(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.Process.Stop(ctx)
}

// Runs reports whether the program runs; false for nil, which was never started.
func (p *Program) Runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.Process.Done():
		return false
	default:
		return true
	}
}

// LastOutput returns the end of the program's output, as one line after a semicolon; empty if there is none.
func (p *Program) LastOutput() string { return p.output.words() }

// RunProgram runs a program on a host until it ends.
func RunProgram(ctx context.Context, h *lab.Host, path string, args ...string) error {
	p, err := StartProgram(ctx, h, path, args...)
	if err != nil {
		return err
	}
	if err := p.Process.Wait(); err != nil {
		return fmt.Errorf("%w%s", err, p.LastOutput())
	}
	return nil
}

// tail keeps the end of the data that is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	// onLine is called with each complete line, if it is not nil; begun is the incomplete line.
	onLine func(line string)
	begun  []byte
}

const tailBytes = 1000

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, data...)
	if extra := len(t.kept) - tailBytes; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	if t.onLine != nil {
		t.passOn(data)
	}
	return len(data), nil
}

// passOn calls onLine with the lines that data completes.
func (t *tail) passOn(data []byte) {
	t.begun = append(t.begun, data...)
	for {
		line, rest, whole := bytes.Cut(t.begun, []byte("\n"))
		if !whole {
			return
		}
		t.onLine(string(line))
		t.begun = bytes.Clone(rest)
	}
}

// words returns the kept end as one line after a semicolon; empty if nothing was written.
func (t *tail) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	words := strings.Join(strings.Fields(strings.ToValidUTF8(string(t.kept), "")), " ")
	if words == "" {
		return ""
	}
	return fmt.Sprintf("; its last words: %q", words)
}
