// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/text/terminal"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/report"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// benchOutput holds the output flags of the measurements without a laboratory: as JSON, results.json is printed.
type benchOutput struct {
	cmdkit.OutputFlag
}

// run measures and prints the results, even if the measurement ended early. The run has its suite, title and notes.
func (o benchOutput) run(run *results.Run, measure func() ([]results.Trial, error)) error {
	version, commit := cmdkit.Build()
	notes := run.Environment.Notes
	env, err := bench.Machine(version, commit)
	if err != nil {
		return err
	}
	env.Notes = notes
	run.Schema, run.Environment = results.Schema, env
	run.Command, run.Started = strings.Join(os.Args, " "), time.Now()
	run.Trials, err = measure()
	run.Ended = time.Now()
	switch {
	case errors.Is(err, context.Canceled):
		run.Interrupted = true
		err = cmdkit.Interrupted{Err: fmt.Errorf("%w after %d trials", bench.ErrInterrupted, len(run.Trials))}
	case err != nil:
		return err
	}
	if len(run.Trials) == 0 {
		return err
	}
	return errors.Join(err, o.print(run))
}

// print prints the results.
func (o benchOutput) print(run *results.Run) error {
	if o.JSON() {
		return run.Write(os.Stdout)
	}
	return report.Terminal(os.Stdout, run)
}

// progressLine prints the current step on a terminal; nil elsewhere.
func progressLine() func(what string) {
	if !terminal.Is(os.Stderr) {
		return nil
	}
	return func(what string) { fmt.Fprintf(os.Stderr, "%s\n", what) }
}

// progressRounds prints on a terminal the number of rounds that are done; nil elsewhere.
func progressRounds() func(round, rounds int) {
	if !terminal.Is(os.Stderr) {
		return nil
	}
	return func(round, rounds int) {
		end := "\r"
		if round == rounds {
			end = "\n"
		}
		fmt.Fprintf(os.Stderr, "round %d of %d%s", round, rounds, end)
	}
}
