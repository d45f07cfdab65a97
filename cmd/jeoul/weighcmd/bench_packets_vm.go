// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/vm"
)

// packetsVM is a measurement of packets in a virtual machine, from the outside.
type packetsVM struct {
	vmLab
	Command *benchPacketsCmd
	// Run holds the results, once the machine has sent them.
	Run *results.Run
}

// inVM measures in a virtual machine, and prints the results.
func (c *benchPacketsCmd) inVM(ctx context.Context) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program's own file: %w", err)
	}
	v := &packetsVM{vmLab: vmLab{benchLab: c.benchLab, Started: time.Now()}, Command: c}
	kernel, accelerator, err := v.prepare(ctx)
	if err != nil {
		return err
	}
	if executable, err = v.program(executable); err != nil {
		return err
	}
	end, err := vm.Run(ctx, vm.Machine{
		Kernel: kernel, Accelerator: accelerator, Executable: executable, Worker: c.Build,
		Job: v.Job(), Limit: c.Limit,
		Hello:  v.hello,
		Line:   func(line string) { fmt.Fprintln(os.Stderr, line) },
		Result: v.Result,
	})
	err = v.Outcome(end, err)
	if v.Run == nil || len(v.Run.Trials) == 0 {
		return err
	}
	return errors.Join(err, c.print(v.Run))
}

// Job returns the measurement that the machine does.
func (v *packetsVM) Job() vm.Job {
	c := v.Command
	hooks := make([]string, len(c.Hook))
	for i, hook := range c.Hook {
		hooks[i] = string(hook)
	}
	// Another build may be older, and accepts the spellings that are deprecated here.
	format, match := "--output=json", "--match"
	if c.Build != "" {
		format, match = "--json", "--only"
	}
	args := []string{
		"bench", "packets", format, "--hook", strings.Join(hooks, ","),
		"--repeats", strconv.Itoa(c.Repeats), "--rounds", strconv.Itoa(c.Rounds), "--packets",
		strconv.FormatUint(uint64(c.Packets), 10),
	}
	if c.Only != "" {
		args = append(args, match, c.Only)
	}
	return vm.Job{Args: args, Result: vmResults, Prints: true}
}

// Result reads the machine's results; they are empty if it could not measure.
func (v *packetsVM) Result(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	run, err := v.read(text)
	if err != nil {
		return err
	}
	run.Environment.Notes = packetsNotes()
	if v.Machine.Instructions {
		packets.CountInstructions(run)
	}
	v.Run = run
	return nil
}

// Outcome turns the machine's end into the error of a measurement.
func (v *packetsVM) Outcome(end vm.End, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, vm.ErrLimit):
		return cmdkit.Interrupted{Err: fmt.Errorf("interrupted before the last round had ended: %w", err)}
	case err != nil:
		return err
	case end.Status != 0:
		return fmt.Errorf("measuring in the virtual machine ended with status %d; the reason is above", end.Status)
	}
	return nil
}
