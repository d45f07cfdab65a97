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

// program is a subject's process, and its output.
type program struct {
	name    string
	process *lab.Process
	output  tail
}

// startProgram runs a program on a host. It is not stopped by the end of ctx,
// so that its subject can be taken down in order.
func startProgram(ctx context.Context, host *lab.Host, path string, args ...string) (*program, error) {
	return startHeard(ctx, host, nil, path, args...)
}

// startHeard is startProgram for one whose lines, of both its outputs, are heard.
func startHeard(ctx context.Context, host *lab.Host, hear func(line string), path string,
	args ...string) (*program, error) {
	// Each in a session of its own: a subject that makes daemons of its own (jeoul's HAProxy) puts them in one, and
	// whom the kernel's scheduler counts to the bench must not differ between subjects.
	return startCommand(ctx, host, hear, lab.Command{Path: path, Args: args, Session: true})
}

// startCommand is startHeard for a command, whose output is kept.
func startCommand(ctx context.Context, host *lab.Host, hear func(line string), command lab.Command) (*program, error) {
	p := &program{name: filepath.Base(command.Path)}
	p.output.hear = hear
	command.Stdout, command.Stderr = &p.output, &p.output
	var err error
	p.process, err = host.Start(context.WithoutCancel(ctx), command)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// upBound is how long a subject may take to come up: beside other work the kernel alone takes some ten
// seconds to verify a program, in a machine that is emulated all is ten times slower, and only a subject that
// never comes up waits for all of it.
const upBound = time.Minute

// waitUntil polls ready until it returns nil, the program ends, or upBound is
// over. The error wraps ErrNotUp and has the program's output.
func (p *program) waitUntil(ctx context.Context, ready func() error) error {
	bounded, cancel := context.WithTimeout(ctx, upBound)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.process.Done():
			return fmt.Errorf("%w: %w%s", ErrNotUp, cmp.Or(p.process.Wait(), errors.New(p.name+" ended by itself")),
				p.output.words())
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w within %v: %w%s", ErrNotUp, upBound, err, p.output.words())
		case <-tick.C:
		}
	}
}

// stop ends the program; nil stands for one that was never started.
func (p *program) stop(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.process.Stop(ctx)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	// hear is called with each whole line, if it is not nil; begun is the rest.
	hear  func(line string)
	begun []byte
}

const tailBytes = 1000

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, data...)
	if extra := len(t.kept) - tailBytes; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	if t.hear != nil {
		t.tell(data)
	}
	return len(data), nil
}

// tell passes on the lines that data completes.
func (t *tail) tell(data []byte) {
	t.begun = append(t.begun, data...)
	for {
		line, rest, whole := bytes.Cut(t.begun, []byte("\n"))
		if !whole {
			return
		}
		t.hear(string(line))
		t.begun = bytes.Clone(rest)
	}
}

// words returns what was kept as one line behind a semicolon; empty if nothing.
func (t *tail) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	words := strings.Join(strings.Fields(strings.ToValidUTF8(string(t.kept), "")), " ")
	if words == "" {
		return ""
	}
	return fmt.Sprintf("; its last words: %q", words)
}

// applyRules writes rules to a file and has a program hand them to the kernel.
func applyRules(ctx context.Context, host *lab.Host, name string, rules []byte, program string, args ...string) error {
	path := filepath.Join(host.Dir, name)
	if err := host.WriteFile(path, rules); err != nil {
		return fmt.Errorf("writing rules for %s: %w", program, err)
	}
	p, err := startProgram(ctx, host, program, append(args, path)...)
	if err != nil {
		return err
	}
	if err := p.process.Wait(); err != nil {
		return fmt.Errorf("setting rules with %s: %w%s", program, err, p.output.words())
	}
	return nil
}
