// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// step is a step of the demonstration: a command run by the client, and the expected effect.
type step struct {
	says    string
	command string
	check   func(output string) error
	// up is the number of web servers that serve after it; 0: any.
	up int
}

// steps returns the steps that the guide proposes, in the guide's order.
func steps() []step {
	return []step{
		{says: "Ask through the balancer: each web server in its turn", command: "ask 12",
			check: shares(map[string]int{"web01": 4, "web02": 4, "web03": 4})},
		{says: "Kill a web server: its checks notice", command: "crash web02", up: servers - 1},
		{says: "New connections go to the others", command: "ask 12",
			check: shares(map[string]int{"web01": 6, "web03": 6})},
		{says: "Start it again", command: "revive web02", up: servers},
		{says: "Drain one: it keeps its connections, and gets no new ones", command: "jeoul backend drain web/web03"},
		{says: "", command: "ask 12", check: shares(map[string]int{"web01": 6, "web02": 6})},
		{says: "As configured again", command: "jeoul backend undo", up: servers},
		{says: "Give one three times the share", command: "jeoul backend weight web/web01 3"},
		{says: "", command: "ask 20", check: shares(map[string]int{"web01": 12, "web02": 4, "web03": 4})},
		{says: "Where would a packet go, and why?", command: traceCommand, check: contains("web")},
		{says: "What Prometheus would read: packets to each web server", command: "metrics jeoul_backend_packets_total",
			check: contains(`backend="web01"`)},
		{says: "All of it", command: "jeoul status", check: contains("web03")},
	}
}

// Demo performs the steps that the guide proposes, and shows each command with its output. The error is that of a step
// that did not have its effect.
func (s *Sandbox) Demo(ctx context.Context, to io.Writer) error {
	if _, err := fmt.Fprintf(to, "%s%s", answered(s.Answered), s.picture()); err != nil {
		return err
	}
	for _, step := range steps() {
		if err := s.show(ctx, to, step); err != nil {
			return fmt.Errorf("%s: %w", step.command, err)
		}
	}
	return nil
}

func (s *Sandbox) picture() string {
	return fmt.Sprintf(
		"client01 (%s) asks %s; the balancer sends to web01, web02 and web03, which answer the client directly\n",
		s.lab.Clients[0].IPv4, s.vip())
}

// show performs a step.
func (s *Sandbox) show(ctx context.Context, to io.Writer, step step) error {
	if step.says != "" {
		fmt.Fprintf(to, "\n# %s\n", step.says)
	}
	if _, err := fmt.Fprintf(to, "$ %s\n", step.command); err != nil {
		return err
	}
	var output bytes.Buffer
	command := s.command("/bin/sh", "-c", step.command)
	command.Stdout = io.MultiWriter(to, &output)
	command.Stderr = command.Stdout
	process, err := s.lab.Clients[0].Start(ctx, command)
	if err != nil {
		return err
	}
	if err := process.Wait(); err != nil {
		return err
	}
	if step.check != nil {
		if err := step.check(output.String()); err != nil {
			return err
		}
	}
	if step.up == 0 {
		return nil
	}
	began := time.Now()
	err = s.waitFor(ctx, fmt.Sprintf("not %d web servers serve", step.up), func(status *ops.Status) bool {
		return countUp(status) == step.up
	})
	fmt.Fprintf(to, "%d web servers serve: after %.1f s\n", step.up, time.Since(began).Seconds())
	return err
}

// shares returns a check that the answers came from the given servers, in these numbers.
func shares(want map[string]int) func(string) error {
	return func(output string) error {
		got, err := counted(output)
		if err != nil {
			return err
		}
		if fmt.Sprint(got) != fmt.Sprint(want) { // maps are printed by sorted keys
			return fmt.Errorf("answers came from %v, and should from %v", got, want)
		}
		return nil
	}
}

// contains returns a check that a command's output has a text.
func contains(text string) func(string) error {
	return func(output string) error {
		if !strings.Contains(output, text) {
			return fmt.Errorf("it does not say %q", text)
		}
		return nil
	}
}
