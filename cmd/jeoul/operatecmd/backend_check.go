// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// exitFailing is the exit status where a check did not pass.
const exitFailing = 4

// failingError means that a backend did not pass.
type failingError struct{ text string }

// Error returns the text with the backends that fail.
func (e failingError) Error() string { return e.text }
func (failingError) ExitCode() int   { return exitFailing }

// checkCmd checks a backend now. It does not change the balancer's verdict.
type checkCmd struct {
	cmdkit.DaemonFlags
	Target  cmdkit.Target `arg:"" name:"service/backend" predictor:"backend" help:"The backend, such as web/web01."`
	Verbose bool          `name:"verbose" short:"v" help:"Show every step, and how long it took."`
	cmdkit.OutputFlag
}

// Run checks the backend, and fails if its checks do.
func (c *checkCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	checked, err := client.Check(ctx, c.Target.Service, c.Target.Backend)
	if err != nil {
		return err
	}
	if c.JSON() {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(checked); err != nil {
			return err
		}
	} else {
		writeChecked(os.Stdout, checked, c.Verbose)
	}
	failed := 0
	for _, r := range checked.Results {
		if r.State != lb.Healthy {
			failed++
		}
	}
	if failed > 0 {
		return failingError{fmt.Sprintf(
			"%s: %d of %d checks did not pass; this changes nothing of the balancer, to which it is %s",
			checked.Target, failed, len(checked.Results), checked.State)}
	}
	return nil
}

// writeChecked prints the result of each check.
func writeChecked(w io.Writer, c *ops.Checked, verbose bool) {
	for i, r := range c.Results {
		fmt.Fprintf(w, "%s  %s via %s: %s, %s\n", c.Target, c.Checks[i].Check, c.Checks[i].Via,
			resultText(r, c.Checks[i]), cmdkit.CheckTime(r.TookSeconds))
		if !verbose {
			continue
		}
		t := cmdkit.NewTable(w, "at", "took", "step", "what came of it")
		cmdkit.RightAlign(t, "at", "took")
		for _, step := range c.Steps {
			if step.Check == i {
				t.AppendRow([]any{cmdkit.CheckTime(step.AtSeconds), cmdkit.CheckTime(step.TookSeconds), step.Name,
					step.Text})
			}
		}
		t.Render()
	}
}

// resultText is the result of a check in words.
func resultText(r ops.CheckResult, c ops.Check) string {
	switch r.State {
	case lb.Healthy:
		return fmt.Sprintf("passed (%s)", cmdkit.OrDash(r.Answer))
	case lb.Failing:
		return fmt.Sprintf("failed: the backend %s; expected: %s", r.Reason, c.Expected)
	}
	return fmt.Sprintf("not made: %s", cmdkit.OrDash(r.Reason))
}
