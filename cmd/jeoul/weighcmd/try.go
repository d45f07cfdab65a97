// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/jeoul/jeoul/internal/weigh/sandbox"
)

// TryCmd runs a sandbox for a newcomer.
type TryCmd struct {
	Demo    bool     `name:"demo" help:"Show each step by itself, and leave: ask, kill a web server, drain one, change a weight, trace a packet."`
	Command []string `arg:"" optional:"" passthrough:"partial" help:"A command to be run in the client's place (a shell)."`
}

// Help describes the sandbox.
func (TryCmd) Help() string {
	return `A balancer, three web servers behind it and a client are built in network namespaces of this machine, and a shell in the
client's place says what can be done. Nothing outside is touched; with the shell, all of it goes. Needs root.

    sudo jeoul try
    sudo jeoul try --demo
    sudo jeoul try ask 12`
}

// Run builds the sandbox, and removes it however this ends.
func (c *TryCmd) Run(ctx context.Context) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	// The reader of the output may end first; everything must still be removed.
	signal.Ignore(syscall.SIGPIPE)
	ctx, release := sandbox.WithParent(ctx)
	defer release()
	s, err := sandbox.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = exitOf(errors.Join(err, s.Close())) }()
	streams := sandbox.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	switch {
	case c.Demo:
		return s.Demo(ctx, os.Stdout)
	case len(c.Command) > 0:
		return s.Run(ctx, streams, c.Command[0], c.Command[1:]...)
	}
	return s.Shell(ctx, streams)
}

// Validate rejects --demo together with a command.
func (c *TryCmd) Validate() error {
	if c.Demo && len(c.Command) > 0 {
		return errors.New("--demo shows its own steps: leave the command out")
	}
	return nil
}

// commandFailed is the error of a command on the client that has printed its own error.
type commandFailed struct {
	error
	code int
}

func (e commandFailed) ExitCode() int { return e.code }

// exitOf makes jeoul end with the exit status of a command.
func exitOf(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return commandFailed{err, exit.ExitCode()}
	}
	return err
}
