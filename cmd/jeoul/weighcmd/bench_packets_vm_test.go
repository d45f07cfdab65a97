// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/vm"
)

// TestPacketsInAMachine checks the command for a virtual machine, and the reading of its output, without a machine.
func TestPacketsInAMachine(t *testing.T) {
	command := &benchPacketsCmd{Repeats: 2, Rounds: 1, Packets: 20_000, Hook: []lb.Hook{lb.HookXDP, lb.HookTC},
		Only: "l2dsr.*=rr$"}
	v := &packetsVM{Command: command,
		vmLab: vmLab{Started: time.Unix(1, 0), Machine: results.Virtual{Instructions: true, Emulator: "QEMU 9",
			Clock: "tsc"}}}
	job := v.Job()
	want := []string{"bench", "packets", "--output=json", "--hook", "xdp,tc", "--repeats", "2", "--rounds", "1",
		"--packets", "20000", "--match", "l2dsr.*=rr$"}
	if !slices.Equal(job.Args, want) || !job.Prints {
		t.Errorf("the job is %q, want %q, printed", job.Args, want)
	}
	inside := &results.Run{Schema: results.Schema, Suite: "packets", Started: time.Unix(8, 0), Ended: time.Unix(9, 0),
		Environment: results.Environment{Commit: "1cb2b35", Notes: []string{"of another build"}},
		Trials: []results.Trial{{Subject: "empty", Load: "packets", Valid: true, Repeat: 1,
			Saturated: results.SaturatedNone,
			Params:    map[string]any{"hook": "tc"}, Metrics: map[string]float64{results.NsPerPacket: 238}}}}
	var output bytes.Buffer
	if err := inside.Write(&output); err != nil {
		t.Fatal(err)
	}
	if err := v.Result(output.Bytes()); err != nil {
		t.Fatal(err)
	}
	env := v.Run.Environment
	if env.Commit != "1cb2b35" || env.Virtual == nil || env.Virtual.Emulator != "QEMU 9" ||
		slices.Contains(env.Notes, "of another build") {
		t.Errorf("environment %+v", env)
	}
	if got := v.Run.Trials[0].Metrics[results.InstructionsPerPacket]; got != 238 ||
		v.Run.Suite != "packets-instructions" || !v.Run.Started.Equal(v.Started) {
		t.Errorf("%g instructions in suite %q of %v", got, v.Run.Suite, v.Run.Started)
	}

	// A machine that could measure nothing leaves no results.
	silent := &packetsVM{Command: command}
	if err := silent.Result(nil); err != nil || silent.Run != nil {
		t.Errorf("of nothing: %v, %+v", err, silent.Run)
	}
	if err := silent.Result([]byte("{")); err == nil {
		t.Error("half a file was taken")
	}
}

// TestPacketsInAMachineEnd checks the report of the machine's end.
func TestPacketsInAMachineEnd(t *testing.T) {
	v := &packetsVM{}
	if err := v.Outcome(vm.End{}, nil); err != nil {
		t.Error(err)
	}
	if err := v.Outcome(vm.End{Status: 1}, nil); err == nil || !strings.Contains(err.Error(), "status 1") {
		t.Errorf("status 1: %v", err)
	}
	for _, why := range []error{context.Canceled, fmt.Errorf("%w: 5m", vm.ErrLimit)} {
		var interrupted cmdkit.Interrupted
		if err := v.Outcome(vm.End{Status: 130}, why); !errors.As(err, &interrupted) || !errors.Is(err, why) &&
			!strings.Contains(err.Error(), why.Error()) {
			t.Errorf("%v: %v", why, err)
		}
	}
	if err := v.Outcome(vm.End{}, vm.ErrMachine); !errors.Is(err, vm.ErrMachine) {
		t.Errorf("a machine that failed: %v", err)
	}
}
