// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/vm"
)

// The places of a run's laboratory.
const (
	labHere     = "here"
	labVM       = "vm"
	labCounting = "vm-icount"
)

// benchLab holds the flags that select the place of a laboratory.
type benchLab struct {
	Lab     string        `enum:"here,vm,vm-icount" default:"here" placeholder:"here|vm|vm-icount" help:"Where the laboratory is: here; in a virtual machine with Debian's kernel (vm); or in an emulated one whose clock counts instructions (vm-icount)."`
	Kernel  string        `placeholder:"RELEASE" default:"trixie" help:"The Debian release whose kernel a virtual machine has (${default})."`
	Arch    vm.Arch       `placeholder:"ARCH" help:"The architecture of a virtual machine: amd64 or arm64; by default this machine's own. Another is emulated, and has Debian's programs of that release."`
	Program string        `name:"program" placeholder:"FILE" help:"The jeoul that a virtual machine has; by default this one, or for another architecture ARCH/jeoul beside it, where make build ARCH=ARCH puts it."`
	Limit   time.Duration `name:"time-limit" default:"6h" placeholder:"DURATION" help:"How long a virtual machine may run (${default}); what it measured until then is kept."`
}

// benchVM holds the flags of a suite's run that may be in a virtual machine.
type benchVM struct {
	benchLab
	// Guest is the description of the machine for the process inside.
	Guest *guestFlag `hidden:"" placeholder:"JSON"`
}

// guestFlag is a description of a virtual machine in JSON.
type guestFlag struct{ results.Virtual }

// UnmarshalText reads the description.
func (g *guestFlag) UnmarshalText(text []byte) error { return json.Unmarshal(text, &g.Virtual) }

// virtual describes the virtual machine of this process; nil if there is none.
func (v benchVM) virtual() *results.Virtual {
	if v.Guest == nil {
		return nil
	}
	return &v.Guest.Virtual
}

// Validate rejects flags that no virtual machine can have.
func (l benchLab) Validate() error {
	if l.Limit <= 0 {
		return errors.New("--time-limit must be more than 0")
	}
	if l.Arch == "" {
		return nil
	}
	if err := l.Arch.Check(); err != nil {
		return fmt.Errorf("--arch: %w", err)
	}
	return nil
}

// vmSuite and vmResults are the paths of the suite and of the results in the machine.
const (
	vmSuite   = "suite.yaml"
	vmResults = "/tmp/results"
	// vmBefore is the directory of an earlier run's results.
	vmBefore = "before"
)

// inVM runs the suite in a virtual machine that contains this jeoul.
func (c *benchRunCmd) inVM(ctx context.Context, suite *bench.Suite, dir, executable string) (*results.Run, error) {
	form := suite.Long
	if c.Quick {
		form = suite.Quick
	}
	// A suite that the machine would reject is rejected before the machine is started.
	if _, err := form.Only(c.Only, c.Loads); err != nil {
		return nil, err
	}
	v := &vmRun{vmLab: vmLab{benchLab: c.benchLab, Started: time.Now()}, Command: c, dir: dir}
	return v.weigh(ctx, executable)
}

// vmLab is a virtual machine for measurements, from the outside.
type vmLab struct {
	benchLab
	Started time.Time
	Machine results.Virtual
}

// vmRun is a suite's run in a virtual machine, from the outside.
type vmRun struct {
	vmLab
	Command *benchRunCmd
	dir     string
	// run holds the results, as of the last trial.
	run *results.Run
}

// weigh runs the suite in a virtual machine and writes its results, trial by trial. It returns the same as bench.Run.
func (v *vmRun) weigh(ctx context.Context, executable string) (*results.Run, error) {
	kernel, accelerator, err := v.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if executable, err = v.program(executable); err != nil {
		return nil, err
	}
	files, err := v.files()
	if err != nil {
		return nil, err
	}
	job, err := v.Job()
	if err != nil {
		return nil, err
	}
	end, err := vm.Run(ctx, vm.Machine{
		Kernel: kernel, Accelerator: accelerator, Executable: executable, Other: v.Command.Other,
		Job: job, Files: files, Limit: v.Limit,
		Hello:  v.hello,
		Line:   func(line string) { fmt.Fprintln(os.Stderr, line) },
		Result: v.result,
	})
	return v.run, v.outcome(ctx, end, err)
}

// prepare finds a kernel and selects the accelerator.
func (l *vmLab) prepare(ctx context.Context) (*vm.Kernel, vm.Accelerator, error) {
	if l.Arch == "" {
		l.Arch = vm.Own()
	}
	emulator, err := vm.Version(ctx, l.Arch)
	if err != nil {
		return nil, "", err
	}
	cache, err := vm.CacheDir()
	if err != nil {
		return nil, "", err
	}
	say := func(what string) { fmt.Fprintln(os.Stderr, what) }
	kernel, err := vm.Fetch(ctx, cache, l.Kernel, l.Arch, say)
	if err != nil {
		return nil, "", err
	}
	accelerator, reason := vm.Counting, ""
	if l.Lab == labVM {
		accelerator, reason = vm.Choose(ctx, kernel)
	}
	host, err := bench.Machine(cmdkit.Build())
	if err != nil {
		return nil, "", err
	}
	l.Machine = results.Virtual{
		Emulator: "QEMU " + emulator, Accelerator: string(accelerator), Reason: reason,
		Instructions: accelerator == vm.Counting,
		Package:      kernel.Package, HostKernel: host.Kernel, HostCPU: host.CPU, HostCores: host.Cores,
	}
	say(fmt.Sprintf("starting a virtual machine: Linux %s, %s%s", kernel.Version, accelerator, inBrackets(reason)))
	return kernel, accelerator, nil
}

// program returns the path of the jeoul binary for the machine, given the path of this one. Its error wraps vm.ErrArch
// if the binary is of another architecture.
func (l *vmLab) program(own string) (string, error) {
	path := l.Program
	switch {
	case path != "":
	case l.Arch == vm.Own():
		return own, nil
	default:
		path = filepath.Join(filepath.Dir(own), string(l.Arch), "jeoul")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf(
			"a virtual machine of %[1]s needs a jeoul of %[1]s: %[2]w: build it by `make build ARCH=%[1]s`, "+
				"or name it by --program", l.Arch, err)
	}
	return path, l.Arch.CheckProgram(path)
}

// files returns the files that the run in the machine reads: the suite, and an earlier run's results.
func (v *vmRun) files() (map[string][]byte, error) {
	suite, err := os.ReadFile(v.Command.Suite)
	if err != nil {
		return nil, fmt.Errorf("reading the suite: %w", err)
	}
	files := map[string][]byte{vmSuite: suite}
	if v.Command.Resume == "" {
		return files, os.MkdirAll(v.dir, 0o755)
	}
	path := filepath.Join(v.dir, bench.ResultsFile)
	before, err := results.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	v.Started = before.Started
	files[filepath.Join(vmBefore, bench.ResultsFile)], err = os.ReadFile(path)
	return files, err
}

func inBrackets(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// Job returns the run that the machine does.
func (v *vmRun) Job() (vm.Job, error) {
	machine, err := json.Marshal(v.Machine)
	if err != nil {
		return vm.Job{}, err
	}
	left := vmResults
	args := []string{"bench", "run", vm.JobPath(vmSuite), "--guest", string(machine)}
	if v.Command.Resume == "" {
		args = append(args, "--to", left)
	} else {
		left = vm.JobPath(vmBefore)
		args = append(args, "--resume", left)
	}
	if v.Command.Quick {
		args = append(args, "--quick")
	}
	if v.Command.Repeats > 0 {
		args = append(args, "--repeats", strconv.Itoa(v.Command.Repeats))
	}
	if len(v.Command.Only) > 0 {
		args = append(args, "--only", strings.Join(v.Command.Only, ","))
	}
	if len(v.Command.Loads) > 0 {
		args = append(args, "--loads", strings.Join(v.Command.Loads, ","))
	}
	if v.Command.Other != "" {
		args = append(args, "--other", vm.OtherPath)
	}
	return vm.Job{Args: args, Result: filepath.Join(left, bench.ResultsFile)}, nil
}

func (l *vmLab) hello(h vm.Hello) {
	l.Machine.Clock = h.Clock
	if len(h.Missing) > 0 {
		fmt.Fprintf(os.Stderr, "the virtual machine's kernel has no %s\n", strings.Join(h.Missing, ", "))
	}
}

// read reads results from the machine. Times are those of this machine, because the other's clock may count something
// else.
func (l *vmLab) read(text []byte) (*results.Run, error) {
	run, err := results.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("reading the virtual machine's results: %w", err)
	}
	run.Command, run.Started = strings.Join(os.Args, " "), l.Started
	if !run.Ended.IsZero() {
		run.Ended = time.Now()
	}
	if run.Environment.Virtual == nil {
		run.Environment.Virtual = &l.Machine
	}
	run.Environment.Virtual.Clock = l.Machine.Clock
	return run, nil
}

// result reads the results after a trial.
func (v *vmRun) result(text []byte) error {
	run, err := v.read(text)
	if err != nil {
		return err
	}
	v.run = run
	return run.Save(filepath.Join(v.dir, bench.ResultsFile))
}

// outcome turns the machine's end into the error of a run.
func (v *vmRun) outcome(ctx context.Context, end vm.End, err error) error {
	switch {
	case ctx.Err() != nil, errors.Is(err, vm.ErrLimit):
		if err == ctx.Err() {
			err = nil // the interruption is reported already
		}
		if v.run == nil {
			return errors.Join(fmt.Errorf("%w before the first trial had ended; nothing is kept", bench.ErrInterrupted),
				err)
		}
		v.run.Interrupted, v.run.Ended = true, time.Now()
		path := filepath.Join(v.dir, bench.ResultsFile)
		return errors.Join(
			fmt.Errorf("%w after %d trials, which are in %s", bench.ErrInterrupted, len(v.run.Trials), path),
			err, v.run.Save(path))
	case err != nil:
		return err
	case end.Status != 0:
		return fmt.Errorf("the run in the virtual machine ended with status %d; the reason is above", end.Status)
	}
	return nil
}
