// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/bgp/speaker"
	"github.com/jeoul/jeoul/internal/host/resident"
)

type speakerCmd struct {
	Socket     string `name:"socket" required:"" type:"path" placeholder:"PATH" help:"Unix socket on which the balancer says what is announced."`
	Restarting bool   `name:"restarting" help:"A speaker before this one has ended, and routers may have kept its routes."`
}

// Run speaks BGP until the balancer ends it, or the context ends: then routes are withdrawn first.
func (c *speakerCmd) Run(ctx context.Context) error {
	// The reader of its log may end with the balancer that has started it.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	resident.Daemon()
	listener, err := bgp.Listen(ctx, c.Socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	log := newLogger(os.Stderr)
	made := speaker.New(log, c.Restarting, bgp.RoutesJournal(c.Socket))
	how, err := bgp.Serve(ctx, listener, made, buildID())
	if how == bgp.Stop {
		made.Shutdown(bgp.Stop)
		// A socket that stays says that the process ended without a word.
		os.Remove(c.Socket)
	}
	return err
}

// startSpeaker starts a process that speaks BGP, in a session of its own, so that it outlives this one.
func startSpeaker(socket string, restarting bool) error {
	args := []string{"speaker", "--socket", socket}
	if restarting {
		args = append(args, "--restarting")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "jeoul"
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // or what is left of it stays in the list of processes
	return nil
}

// buildID tells this program from another build of it: the build ID that Go's linker has written into it, which is a
// hash of its parts.
func buildID() string {
	version, commit := cmdkit.Build()
	file, err := elf.Open("/proc/self/exe")
	if err != nil {
		return version + " " + commit
	}
	defer file.Close()
	section := file.Section(".note.go.buildid")
	if section == nil {
		return version + " " + commit
	}
	note, err := section.Data()
	// An ELF note: three words of 32 bits, the name "Go" in four bytes, and the ID.
	if err != nil || len(note) < 16 {
		return version + " " + commit
	}
	return fmt.Sprintf("%s %s", version, note[16:])
}
