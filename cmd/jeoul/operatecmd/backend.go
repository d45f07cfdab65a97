// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/terminal"
)

// BackendCmd changes backends of a running balancer. Its changes overlay the configuration, and end with the process.
type BackendCmd struct {
	Drain   drainCmd   `cmd:"" help:"Give a backend no new flow, and let it finish those that it has."`
	Disable disableCmd `cmd:"" help:"Take a backend out of its service at once; the flows that it has end."`
	Enable  enableCmd  `cmd:"" help:"Give a drained or disabled backend new flows again."`
	Weight  weightCmd  `cmd:"" help:"Give a backend another share of new flows."`
	Check   checkCmd   `cmd:"" help:"Ask a backend now whether it serves, as its health checks do."`
	Undo    undoCmd    `cmd:"" help:"Take back the latest of these operations; up to 32, one at a time."`
	List    listCmd    `cmd:"" help:"List operations in force, what is left on drained backends, and what undo takes back."`
}

// Help explains how long an operation holds.
func (BackendCmd) Help() string {
	return `An operation is laid over the configuration. It outlives restarts of the daemon, and ends when the daemon is stopped.`
}

// targetArgument is the backend of a command.
type targetArgument struct {
	Target      cmdkit.Target `arg:"" name:"service/backend" predictor:"backend" help:"The backend, such as web/web01."`
	AllServices bool          `name:"all-services" help:"The backends of its address in every service."`
}

func (t targetArgument) order(verb ops.Verb) ops.Order {
	return ops.Order{Verb: verb, Service: t.Target.Service, Backend: t.Target.Backend, AllServices: t.AllServices}
}

type drainCmd struct {
	cmdkit.DaemonFlags
	targetArgument
	Deadline time.Duration `name:"deadline" placeholder:"DURATION" help:"Take it out of the service if it is still drained after this time; the flows that are left then end. Without it, it is drained until it is enabled."`
	Wait     bool          `name:"wait" help:"Show what is left, and return when nothing is (status 0) or at the deadline (status 3)."`
}

// Validate rejects flags that contradict each other.
func (c *drainCmd) Validate() error {
	if c.Deadline < 0 {
		return fmt.Errorf("--deadline %s has passed before it begins", c.Deadline)
	}
	return nil
}

// Run drains the backend, and waits if --wait is given.
func (c *drainCmd) Run(ctx context.Context) error {
	order := c.order(ops.Drain)
	order.Deadline = c.Deadline
	began := time.Now()
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	done, err := client.Operate(ctx, order)
	if err != nil {
		return err
	}
	writeOperation(os.Stdout, done)
	if !c.Wait {
		return nil
	}
	return awaitDrain(ctx, os.Stdout, client.Operations, done, began, terminal.Is(os.Stdout))
}

type disableCmd struct {
	cmdkit.DaemonFlags
	targetArgument
}

// Run disables the backend.
func (c *disableCmd) Run(ctx context.Context) error {
	return operate(ctx, c.DaemonFlags, c.order(ops.Disable))
}

type enableCmd struct {
	cmdkit.DaemonFlags
	targetArgument
	Force bool `name:"force" help:"Give it new flows even if its health checks fail, until it is enabled without this, drained or disabled."`
}

// Run enables the backend.
func (c *enableCmd) Run(ctx context.Context) error {
	order := c.order(ops.Enable)
	order.Force = c.Force
	return operate(ctx, c.DaemonFlags, order)
}

type weightCmd struct {
	cmdkit.DaemonFlags
	targetArgument
	Weight int64 `arg:"" name:"weight" help:"0 to 65535; 0 takes no new flow."`
}

// Validate rejects weights that the daemon would reject anyway.
func (c *weightCmd) Validate() error {
	if c.Weight < 0 || c.Weight > 1<<16-1 {
		return fmt.Errorf("the weight %d is out of range: 0 to 65535", c.Weight)
	}
	return nil
}

// Run sets the weight.
func (c *weightCmd) Run(ctx context.Context) error {
	order := c.order(ops.Weight)
	order.Weight = c.Weight
	return operate(ctx, c.DaemonFlags, order)
}

type undoCmd struct {
	cmdkit.DaemonFlags
}

// Run undoes the last operation.
func (c *undoCmd) Run(ctx context.Context) error {
	return operate(ctx, c.DaemonFlags, ops.Order{Verb: ops.Undo})
}

func operate(ctx context.Context, at cmdkit.DaemonFlags, order ops.Order) error {
	client, err := at.NewClient()
	if err != nil {
		return err
	}
	done, err := client.Operate(ctx, order)
	if err == nil {
		writeOperation(os.Stdout, done)
	}
	return err
}

type listCmd struct {
	cmdkit.DaemonFlags
	cmdkit.OutputFlag
}

// Run lists the operations.
func (c *listCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	operations, err := client.Operations(ctx)
	if err != nil {
		return err
	}
	if c.JSON() {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(operations)
	}
	writeOperations(os.Stdout, operations, time.Now())
	return nil
}

// maxNamed is the greatest number of backends that are named on a line.
const maxNamed = 5

// namesOf lists an operation's backends.
func namesOf(targets []ops.Target) string {
	var names []string
	for i, t := range targets {
		if i == maxNamed {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(targets)-i)
		}
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

// operationText names an operation, as in "drain web/web01".
func operationText(o *ops.Operation) string {
	text := fmt.Sprintf("%s %s", o.Verb, namesOf(o.Targets))
	if o.Weight != nil {
		text += fmt.Sprintf(" %d", *o.Weight)
	}
	if o.Forced {
		text += " --force"
	}
	return text
}

// writeOperation prints an operation that was executed.
func writeOperation(w io.Writer, o *ops.Operation) {
	names := namesOf(o.Targets)
	switch o.Verb {
	case ops.Drain:
		fmt.Fprintf(w, "%s: no new flows", names)
		if !o.Deadline.IsZero() {
			fmt.Fprintf(w, "; out at %s, with what is left then", o.Deadline.Local().Format(time.DateTime))
		}
		fmt.Fprintln(w)
	case ops.Disable:
		fmt.Fprintf(w, "%s: out of service\n", names)
	case ops.Enable:
		fmt.Fprintf(w, "%s: takes new flows\n", names)
	case ops.Weight:
		fmt.Fprintf(w, "%s: weight %d\n", names, *o.Weight)
	case ops.Undo:
		fmt.Fprintf(w, "%s: taken back: %s\n", names, operationText(o.Undone))
	}
	for i, note := range o.Notes {
		if i == maxNamed {
			fmt.Fprintf(w, "  and %d more\n", len(o.Notes)-i)
			break
		}
		fmt.Fprintf(w, "  %s\n", note)
	}
}

// writeOperations prints the operations in force.
func writeOperations(w io.Writer, operations *ops.Operations, now time.Time) {
	if len(operations.InForce) == 0 {
		fmt.Fprintln(w, "everything is as the configuration has it")
	} else {
		cmdkit.WriteInForce(w, operations.InForce, now)
		fmt.Fprintln(w, "\nthis ends when the daemon is stopped; to keep it, write it into the configuration")
	}
	writeHistory(w, operations.History)
}

// writeHistory lists the operations that can be undone, the next first.
func writeHistory(w io.Writer, history []ops.Operation) {
	for i, o := range history {
		if i == 0 {
			fmt.Fprintln(w, "\nundo takes back, one at a time:")
		}
		fmt.Fprintf(w, "  %s  %s, by %s", o.At.Local().Format(time.DateTime), operationText(&o), o.By)
		if o.Lost != "" {
			fmt.Fprintf(w, " (not any more: %s)", o.Lost)
		}
		fmt.Fprintln(w)
	}
}
