// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func (kind) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) (all []results.Trial, err error) {
	f := &floodTrial{runner: r, trial: t, running: running}
	if err := bench.Poll(ctx, bench.ReadyTimeout, func() error {
		return probe.Ask(ctx, r.Lab.Clients[0], running.Target(0), "/"+web.FileName, t.Form.Web.FileBytes)
	}); err != nil {
		return nil, fmt.Errorf("the subject came up, but does not serve: %w", err)
	}
	f.stage, err = newFloodStage(t, r.Lab)
	defer func() { err = errors.Join(err, f.stage.close()) }()
	if err == nil {
		err = f.run(ctx)
	}
	if err != nil {
		return nil, err
	}
	report, err := f.client.report()
	if err != nil {
		return nil, err
	}
	f.write(&blank, report)
	return []results.Trial{blank}, nil
}

// run lets the client send requests, and floods the subject during the second phase.
func (f *floodTrial) run(ctx context.Context) (err error) {
	if f.client, err = f.startClient(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.client.process.Stop(context.WithoutCancel(ctx))) }()
	if err = f.client.opened(ctx); err == nil {
		err = f.runner.Lab.Clients[0].Renice(bench.FirstNice)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stage.stop()) }()
	each := f.trial.Duration
	next := func() error { return f.client.next(ctx) }
	for _, step := range []func() error{
		func() error { return f.client.pass(ctx, floodBefore) },
		func() error { return f.read(&f.quiet[0]) },
		next, // the quiet phase
		func() error { return f.client.pass(ctx, each) },
		next,
		func() error { return errors.Join(f.read(&f.quiet[1]), f.readFlowState(ctx, 0)) },
		func() error { return f.begin(ctx) },
		func() error { return f.client.pass(ctx, floodBegins) },
		func() error { return f.read(&f.flooded[0]) },
		next, // the phase under the flood
		func() error { return f.client.pass(ctx, each) },
		next,
		func() error { return errors.Join(f.read(&f.flooded[1]), f.readFlowState(ctx, 1), f.stage.stop()) },
		func() error { return f.client.pass(ctx, floodEnds) },
		next,
		func() error { return f.client.wait(ctx, cmp.Or(settingsOf(f.trial.By).Timeout, load.SteadyTimeout)) },
		func() error { return f.readFlowState(ctx, 2) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// begin begins the flood and waits until its packets arrive.
func (f *floodTrial) begin(ctx context.Context) error {
	f.stage.start(ctx, floodTime(f.trial.Duration))
	return bench.Poll(ctx, floodStarts, func() error {
		counts, err := f.stage.flood.Counts()
		switch {
		case err != nil:
			return bench.GiveUp(err)
		case counts.Offered == 0:
			return errors.New("no packet of the flood has reached the balancer's link")
		}
		return nil
	})
}

func (f *floodTrial) read(into *floodReading) (err error) {
	if into.cpu, err = f.runner.Lab.Balancer.CPUTime(); err != nil {
		return err
	}
	into.at = time.Now()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return fmt.Errorf("reading the CPUs' times: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return fmt.Errorf("reading the CPUs' times: %w", err)
	}
	core := stat.CPU[int64(bench.LastCPU())]
	into.idle = core.Idle + core.Iowait
	into.counts, err = f.stage.flood.Counts()
	return err
}

// readFlowState asks the subject how much state it stores.
func (f *floodTrial) readFlowState(ctx context.Context, at int) (err error) {
	if subject, ok := f.running.(subject.Remembering); ok {
		f.remembered[at], err = subject.Remembered(ctx)
	}
	return err
}

// floodMaxOutput is the maximum of the kept output, in bytes.
const floodMaxOutput = 16 << 20

func (o output) Write(data []byte) (int, error) {
	o.client.mu.Lock()
	defer o.client.mu.Unlock()
	o.into.Write(data[:min(len(data), floodMaxOutput-o.into.Len())])
	return len(data), nil
}

func (f *floodTrial) startClient(ctx context.Context) (*steadyClient, error) {
	host := f.runner.Lab.Clients[0]
	what, err := json.Marshal(load.Steady{
		Target: f.running.Target(0), Path: "/" + web.FileName, FileBytes: f.trial.Form.Web.FileBytes,
		Connections: f.trial.Concurrency, Every: settingsOf(f.trial.By).Every, New: settingsOf(f.trial.By).New,
		Timeout: settingsOf(f.trial.By).Timeout,
		Phases:  floodPhases(f.trial.Duration),
	})
	if err != nil {
		return nil, err
	}
	c := &steadyClient{}
	c.process, err = host.Start(context.WithoutCancel(ctx), lab.Command{
		Path: f.runner.Options.Executable, Args: []string{"bench", "steady", string(what)}, CPUs: []int{bench.LastCPU()},
		Stdout: output{c, &c.stdout}, Stderr: output{c, &c.stderr},
	})
	return c, err
}

// steadyTimeout is how long a client may take to open its connections, to end a phase, and to report after the last
// answer.
const steadyTimeout = 30 * time.Second

// opened waits until all connections are open.
func (c *steadyClient) opened(ctx context.Context) error {
	return bench.Poll(ctx, steadyTimeout, func() error {
		if err := c.alive(); err != nil {
			return bench.GiveUp(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !load.SteadyOpened(c.stdout.Bytes()) {
			return load.ErrSteady
		}
		return nil
	})
}

// next ends the client's present phase, and waits until the client has ended it. On a busy core this may be late, and
// the next phase has its full length from then on.
func (c *steadyClient) next(ctx context.Context) error {
	before := c.ended()
	if err := c.process.Signal(unix.SIGUSR1); err != nil {
		return fmt.Errorf("telling the client that a phase ends: %w", err)
	}
	return bench.Poll(ctx, steadyTimeout, func() error {
		err := c.alive() // before reading the output, which is complete once the client has ended
		if c.ended() > before {
			return nil
		}
		if err != nil {
			return bench.GiveUp(err)
		}
		return errors.New("the client does not end a phase that it was told to end")
	})
}

// ended returns how many phases the client has ended.
func (c *steadyClient) ended() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return load.SteadyEnded(c.stdout.Bytes())
}

// alive returns the error with which the client's process ended, or nil while it runs.
func (c *steadyClient) alive() error {
	select {
	case <-c.process.Done():
		return fmt.Errorf("the client ended early: %w%s", cmp.Or(c.process.Wait(), errors.New("by itself")),
			c.lastOutput())
	default:
		return nil
	}
}

func (c *steadyClient) lastOutput() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	words := strings.Join(strings.Fields(c.stderr.String()), " ")
	if words == "" {
		return ""
	}
	return fmt.Sprintf("; its last words: %q", words)
}

// pass waits for the given time while the client runs.
func (c *steadyClient) pass(ctx context.Context, long time.Duration) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.process.Done():
		return c.alive()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits until the client has ended by itself. The client waits for outstanding answers up to its timeout.
func (c *steadyClient) wait(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout+steadyTimeout)
	defer cancel()
	select {
	case <-c.process.Done():
	case <-ctx.Done():
		return fmt.Errorf("waiting for the client's report: %w", ctx.Err())
	}
	if err := c.process.Wait(); err != nil {
		return fmt.Errorf("the client failed: %w%s", err, c.lastOutput())
	}
	return nil
}

func (c *steadyClient) report() (*load.SteadyReport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return load.ParseSteady(c.stdout.Bytes())
}
