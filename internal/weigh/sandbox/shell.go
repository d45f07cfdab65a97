// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Streams are the standard streams of the user.
type Streams struct {
	In       *os.File
	Out, Err *os.File
}

// Shell gives the user a shell on the client, until that ends or the context does.
func (s *Sandbox) Shell(ctx context.Context, streams Streams) error {
	fmt.Fprintf(streams.Out, "%s\n%s\n", answered(s.Answered), Guide())
	// A shell's own files would change PATH and the prompt again.
	command := s.command("/bin/sh")
	if bash, err := exec.LookPath("bash"); err == nil {
		command = s.command(bash, "--noprofile", "--norc")
	}
	err := s.run(ctx, command, streams)
	fmt.Fprintln(streams.Out, "leaving the sandbox")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return nil // a shell ends with the status of its last command
	}
	return err
}

// Run runs one command on the client.
func (s *Sandbox) Run(ctx context.Context, streams Streams, path string, arguments ...string) error {
	if found, err := exec.LookPath(path); err == nil {
		path = found
	} else if own := s.path("bin", path); exists(own) {
		path = own
	}
	return s.run(ctx, s.command(path, arguments...), streams)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs a command, which gets the terminal if there is one.
func (s *Sandbox) run(ctx context.Context, command lab.Command, streams Streams) error {
	command.Stdin, command.Stdout, command.Stderr = streams.In, streams.Out, streams.Err
	back := keepTerminal(streams.In)
	defer back()
	// A shell at a terminal ignores SIGTERM.
	process, err := s.lab.Clients[0].Start(context.WithoutCancel(ctx), command)
	if err != nil {
		return err
	}
	select {
	case <-process.Done():
		return process.Wait()
	case <-ctx.Done():
		_ = process.Kill(context.WithoutCancel(ctx))
		return ctx.Err()
	}
}

// keepTerminal returns a function that gives a terminal back to this process, with its present settings.
func keepTerminal(terminal *os.File) (back func()) {
	settings, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		return func() {} // it is no terminal
	}
	return func() {
		// A process that is not in the foreground is stopped for this.
		signal.Ignore(syscall.SIGTTOU)
		_ = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
		_ = unix.IoctlSetTermios(int(terminal.Fd()), unix.TCSETS, settings)
		signal.Reset(syscall.SIGTTOU)
	}
}
