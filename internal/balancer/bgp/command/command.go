// SPDX-License-Identifier: Apache-2.0

// Package command is the program jeoul-bgp, the process in which a balancer's speaker runs.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/bgp/speaker"
	"github.com/jeoul/jeoul/internal/host/program"
	"github.com/jeoul/jeoul/internal/host/resident"
	"github.com/jeoul/jeoul/internal/text/terminal"
)

// flags is the command line.
type flags struct {
	Socket     string `name:"socket" required:"" type:"path" placeholder:"PATH" help:"Unix socket on which the balancer says what is announced."`
	Restarting bool   `name:"restarting" help:"A speaker before this one has ended, and routers may have kept its routes."`
}

// Run runs the program with these arguments, until the balancer ends it, or SIGINT or SIGTERM does.
func Run(arguments []string) error {
	var f flags
	parser, err := kong.New(&f, kong.Name("jeoul-bgp"), kong.Description(
		"Speaks BGP for the load balancer jeoul, which starts this program where its configuration has `bgp`."))
	if err != nil {
		return err
	}
	if _, err := parser.Parse(arguments); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return f.run(ctx)
}

// run speaks BGP until the balancer ends it, or the context ends: then routes are withdrawn first.
func (f *flags) run(ctx context.Context) error {
	// The reader of its log may end with the balancer that has started it.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	resident.SetGCPercent()
	// The kernel names a program that is run by its descriptor after the descriptor's number.
	_ = os.WriteFile("/proc/self/comm", []byte("jeoul-bgp"), 0)
	build, err := program.OwnBuild()
	if err != nil {
		return fmt.Errorf("read the build of this program: %w", err)
	}
	listener, err := bgp.Listen(ctx, f.Socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	made := speaker.New(terminal.NewLogger(os.Stderr), f.Restarting, bgp.RoutesJournal(f.Socket))
	how, err := bgp.Serve(ctx, listener, made, build)
	if how == bgp.Stop {
		made.Shutdown(bgp.Stop)
		// A socket that is still there means that the speaker was killed.
		os.Remove(f.Socket)
	}
	return err
}
