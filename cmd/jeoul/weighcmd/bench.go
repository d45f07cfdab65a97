// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/text/terminal"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	_ "github.com/jeoul/jeoul/internal/weigh/bench/kind" // for suites
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/report"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// BenchCmd has the commands that measure.
type BenchCmd struct {
	Run          benchRunCmd          `cmd:"" help:"Build a laboratory, weigh the balancers of a suite in it, and report."`
	Packets      benchPacketsCmd      `cmd:"" help:"Measure what a packet costs in the data plane, without a network."`
	Distribution benchDistributionCmd `cmd:"" help:"Count which backends new flows get with each scheduler, without a network."`
	Memory       benchMemoryCmd       `cmd:"" help:"Measure the kernel memory that a remembered flow takes, without a network."`
	Scale        benchScaleCmd        `cmd:"" help:"Measure what 100,000 backends cost to load, change and forward to."`
	// The programs that a run starts on the laboratory's hosts.
	LiveServer benchLiveServerCmd `cmd:"" hidden:""`
	LiveClient benchLiveClientCmd `cmd:"" hidden:""`
	Steady     benchSteadyCmd     `cmd:"" hidden:""`
	Init       benchInitCmd       `cmd:"" hidden:""`

	TransactServer benchTransactServerCmd `cmd:"" hidden:""`
	Worker         benchWorkerCmd         `cmd:"" hidden:""`
	Client         benchClientCmd         `cmd:"" hidden:""`
}

// benchRunCmd runs a suite.
type benchRunCmd struct {
	Suite   string        `arg:"" type:"path" placeholder:"SUITE" help:"The suite, in YAML, such as suites/l2dsr-bmt.yaml."`
	Quick   bool          `help:"Run the suite's short form."`
	Only    []string      `placeholder:"SUBJECT,…" help:"Leave out all subjects but these."`
	Loads   []string      `placeholder:"LOAD,…" help:"Leave out all loads but these."`
	Repeats int           `placeholder:"N" help:"The number of repeats of every point, instead of the suite's."`
	Until   margin        `placeholder:"PERCENT" help:"Repeat until each ratio to the baseline is known this well, such as 5%, from six pairs of trials on, or --within is over; at most --repeats times (100)."`
	Within  time.Duration `default:"1h" placeholder:"DURATION" help:"How long --until may take (${default}); the repeat that is on its way ends first."`
	reportLanguage
	Dir       string `name:"to" type:"path" xor:"place" placeholder:"PATH" help:"Write results and reports into this directory (results/SUITE-TIME)."`
	Inventory string `name:"inventory" short:"i" type:"path" placeholder:"FILE" help:"Run on the machines of this Ansible inventory (INI, or YAML by its name) instead of namespaces."`
	Resume    string `name:"resume" type:"path" xor:"place" placeholder:"DIR" help:"Go on with the run whose results are in this directory, where it was interrupted or failed: same suite, same machine."`
	Other     string `type:"existingfile" placeholder:"FILE" help:"Another build of jeoul, for what is upgraded to it and back: make other."`
	benchVM
}

// Validate rejects contradicting places for a run.
func (c *benchRunCmd) Validate() error {
	if c.Repeats < 0 || c.Repeats > bench.MaxRepeats {
		return fmt.Errorf("--repeats %d is not possible: use 1 to %d", c.Repeats, bench.MaxRepeats)
	}
	if c.Until > 0 && c.Lab != labHere {
		return fmt.Errorf(
			"--until is for the machine's own laboratory, and --lab %s is a virtual one: use --repeats there", c.Lab)
	}
	if c.Within <= 0 {
		return fmt.Errorf("--within %v is no time: use a duration above 0, such as 30m", c.Within)
	}
	if c.Inventory != "" && c.Lab != labHere {
		return fmt.Errorf("--inventory takes machines, and --lab %s a virtual one: choose one of them", c.Lab)
	}
	return c.benchVM.Validate()
}

// untilHangup returns a context that also ends with the user's terminal, unless nohup lets this process outlive it. The
// reader of the output may end first; everything must still be removed.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	// Not ignored, because the programs that are measured would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// Run runs the suite, reports its results, and prints their directory.
func (c *benchRunCmd) Run(ctx context.Context) error {
	ctx, stop := untilHangup(ctx)
	defer stop()
	suite, err := bench.LoadSuite(c.Suite)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program's own file: %w", err)
	}
	dir := cmp.Or(c.Resume, c.Dir)
	if dir == "" {
		dir = filepath.Join("results", suite.Name+"-"+time.Now().Format("20060102-150405"))
	}
	run, err := c.runSuite(ctx, suite, dir, executable)
	// A virtual machine's report is made outside of it.
	if run == nil || len(run.Trials) == 0 || c.Guest != nil {
		return interrupted(err)
	}
	// The results so far are shown whatever ended the run.
	return interrupted(errors.Join(err, writeReports(dir, run, report.Language(c.Lang))))
}

// columns returns the width of a terminal; 0 if it is unknown.
func columns(file *os.File) int {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// runSuite runs the suite in the selected place.
func (c *benchRunCmd) runSuite(ctx context.Context, suite *bench.Suite, dir, executable string) (*results.Run, error) {
	if c.Lab != labHere {
		return c.inVM(ctx, suite, dir, executable)
	}
	var inventory *remote.Inventory
	if c.Inventory != "" {
		var err error
		if inventory, err = remote.LoadInventory(c.Inventory); err != nil {
			return nil, err
		}
	}
	version, commit := cmdkit.Build()
	repeats, enough := c.until()
	return bench.Run(ctx, bench.Options{
		Suite: suite, Quick: c.Quick, Only: c.Only, Loads: c.Loads, Repeats: repeats, Enough: enough, Dir: dir,
		Resume: c.Resume != "", Inventory: inventory,
		Command: strings.Join(os.Args, " "), Version: version, Commit: commit, Executable: executable, Other: c.Other,
		Virtual:  c.virtual(),
		Progress: os.Stderr, Live: terminal.Is(os.Stderr), Columns: func() int { return columns(os.Stderr) },
	})
}

// margin is a fraction, read as per cent.
type margin float64

// UnmarshalText reads "5%" or "5".
func (m *margin) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(string(text), "%")), 64)
	if err != nil || !(v > 0) || v > 100 {
		return fmt.Errorf("%q is no margin: use per cent above 0, up to 100, such as 5%%", text)
	}
	*m = margin(v / 100)
	return nil
}

// maxUntilRepeats bounds the repeats of --until without --repeats.
const maxUntilRepeats = 100

// until returns the greatest number of repeats of every point, and a function that ends the run earlier; nil without
// --until.
func (c *benchRunCmd) until() (repeats int, enough func(*results.Run) string) {
	if c.Until <= 0 {
		return c.Repeats, nil
	}
	deadline := time.Now().Add(c.Within)
	return cmp.Or(c.Repeats, maxUntilRepeats), func(run *results.Run) string {
		return report.Enough(run, float64(c.Until), deadline, time.Now())
	}
}

// interrupted gives an interrupted run the exit status of an interruption.
func interrupted(err error) error {
	if errors.Is(err, bench.ErrInterrupted) {
		return cmdkit.Interrupted{Err: err}
	}
	return err
}

// writeReports prints the report and writes its other forms beside the results, also if the terminal is gone.
func writeReports(dir string, run *results.Run, language report.Language) error {
	printed := language.Terminal(os.Stdout, run)
	if printed != nil {
		printed = fmt.Errorf("printing the report: %w", printed)
	}
	fmt.Println()
	fmt.Println(filepath.Join(dir, bench.ResultsFile))
	for _, form := range []struct {
		name  string
		write formFunc
	}{{"report.html", language.HTML}, {"report.md", language.Markdown}} {
		var text bytes.Buffer
		path := filepath.Join(dir, form.name)
		if err := form.write(&text, run); err != nil {
			return fmt.Errorf("making %s: %w", path, err)
		}
		if err := results.WriteFile(path, text.Bytes()); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		fmt.Println(path)
	}
	return printed
}
