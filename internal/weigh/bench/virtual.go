// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// addVirtual adds the facts about the virtual machine that a reader needs to the environment.
func addVirtual(env *results.Environment, options Options) {
	env.Virtual = options.Virtual
	if options.Counts() {
		env.Notes = append(countingNotes[:len(countingNotes):len(countingNotes)], env.Notes...)
	}
}

// countingNotes are the notes on a machine whose clock counts instructions.
var countingNotes = []string{
	"time is a count of instructions: one processor is emulated, whose clock advances by a nanosecond with each instruction, whatever that " +
		"instruction is, and leaps over idle time to the next timer. Caches, branch prediction, memory bandwidth and other cores are not in it: " +
		"what a packet costs on real hardware is another question",
	"an instruction count per request is the time from the first request to the last answer, by that count, divided by the good requests; " +
		"clients, servers, switch and kernel are in it, and what a balancer adds to it is the difference to direct",
	"before the load the run waits until the balancer's host has been quiet for a second, so that what a daemon does after its start is not in the figures; " +
		"a trial in which the processor idled more than 1 % of the time is not valid, for then time was more than instructions",
	"the kernel's packet work is not measured device by device, which would itself cost instructions, and so CPU is not given by host",
}

// maxIdle is the maximum idle share of a trial in a machine that counts instructions.
const maxIdle = 0.01

// WriteInstructions converts the duration of a load to instructions per request.
func (m *Measurement) WriteInstructions(result *load.Result, reading probe.Reading) {
	if result.Requests > 0 {
		instructions := float64(result.Duration.Nanoseconds())
		m.Got.Metrics[results.InstructionsPerRequest] = instructions / float64(result.Requests)
	}
	if reading.Idle > maxIdle {
		m.Got.Valid = false
		m.Got.Notes = append([]string{fmt.Sprintf(
			"the processor idled %.1f %% of the time: more connections at once would keep it busy",
			100*reading.Idle)}, m.Got.Notes...)
	}
}

// Bounds of the wait for an idle balancer. In a machine that counts instructions, idle time passes at once.
const (
	quietTimeout = 60 * time.Second
	quietFor     = time.Second
	// quietEnough is the share of a core that a balancer may use while it gets no requests.
	quietEnough = 0.005
)

var errNotQuiet = errors.New("the balancer's host is still busy")

// Quiet waits until the balancer's processes have hardly worked for a second: work after its start (of a garbage
// collector, say) is no part of forwarding.
func (m *Measurement) Quiet(ctx context.Context) error {
	if !m.Runner.Options.Counts() {
		return nil
	}
	balancer := m.Runner.Lab.Balancer
	var since time.Time
	var before time.Duration
	err := Poll(ctx, quietTimeout, func() error {
		used, err := balancer.CPUTime()
		if err != nil {
			return giveUp{err}
		}
		now := time.Now()
		if since.IsZero() || now.Sub(since) < quietFor {
			if since.IsZero() {
				since, before = now, used
			}
			return errNotQuiet
		}
		busy := (used - before).Seconds() / now.Sub(since).Seconds()
		since, before = now, used
		if busy > quietEnough {
			return errNotQuiet
		}
		return nil
	})
	if errors.Is(err, errNotQuiet) {
		m.Got.Notes = append(m.Got.Notes, fmt.Sprintf("the balancer's host was not quiet within %v after its start",
			quietTimeout))
		return nil
	}
	return err
}
