// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Process is a started generator.
type Process interface {
	// Done is closed when the process has ended, and its output is complete.
	Done() <-chan struct{}
	// Wait returns the error of a process that ended badly.
	Wait() error
	// Stop ends the process, by force if necessary.
	Stop(ctx context.Context) error
}

// Client is a machine that takes a share of a load.
type Client struct {
	Name  string
	Share Share
	// Start runs a command (the program first) on the machine.
	Start func(ctx context.Context, command []string, stdout, stderr io.Writer) (Process, error)
	// Remote, if it is not nil, is the machine's host in a lab of machines. A worker there then starts and reads the
	// generator, pinned to CPUs if there are any.
	Remote *lab.Host
	CPUs   []int
}

// Drive is a load that is ready to run.
type Drive struct {
	Kind    Kind
	Clients []Client
	// Bound is how long a generator may take from its release to its end.
	Bound time.Duration
	// Before is called when all generators wait at their gates, right before they are released. After is called right
	// after the last one has ended.
	Before, After func() error
}

// Result has the measurements of all clients together.
type Result struct {
	// Requests counts good requests only, Failed all others.
	Requests, Failed uint64
	// Transfer is the transfer of a bulk load: the sum of the clients' rates.
	Transfer Transfer
	// Duration is the time from the first request of any client to the last answer to any. A client ends when its
	// process ends, less the time for answers that it does not count, and starts earlier by the time that it reports.
	// So its work between its last answer and its end (milliseconds) moves both, and does not count.
	Duration time.Duration
	Latency  *Latency
	// Waits and Lost are the sums of those of the Outcomes. PerSecond is the sum of each client's rate of good requests
	// over its own time.
	Waits     Waits
	Lost      uint64
	PerSecond float64
	// Problems make the result invalid as a figure; Notes do not.
	Problems, Notes []string
}

// ErrGate means that a generator did not reach its gate.
var ErrGate = errors.New("a load generator did not come up")

// gateTimeout is how long all generators may take to reach their gates.
const gateTimeout = 20 * time.Second

// runner is the running process of a client.
type runner struct {
	client         Client
	gate           *os.File
	process        Process
	stdout, stderr capped
	ended          time.Time
	hung           bool
	// remote is set for a generator on another machine. kind is set if this process is the worker of the generator.
	remote *remoteRunner
	kind   Kind
}

// Run runs the load. A generator that dies, hangs or writes nonsense is a Problem in the result. An error means that
// there was no load at all, or that ctx ended it. Run never leaves a generator running.
func (d Drive) Run(ctx context.Context) (*Result, error) {
	runners := make([]*runner, len(d.Clients))
	for i, client := range d.Clients {
		runners[i] = &runner{client: client}
		if client.Remote != nil {
			runners[i].remote = &remoteRunner{host: client.Remote}
		}
	}
	defer func() {
		for _, r := range runners {
			r.close()
		}
	}()
	if err := d.bringUp(ctx, runners); err != nil {
		return nil, err
	}
	if err := d.Before(); err != nil {
		return nil, err
	}
	d.release(runners)
	d.wait(ctx, runners)
	if err := d.After(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.collect(runners), nil
}

// bringUp starts all generators up to their gates.
func (d Drive) bringUp(ctx context.Context, runners []*runner) error {
	at := func(r *runner, err error) error {
		if err != nil {
			return fmt.Errorf("starting %s on %s: %w", d.Kind.Name(), r.client.Name, err)
		}
		return nil
	}
	err := eachRunner(runners, func(r *runner) error {
		if r.remote != nil {
			return at(r, r.remote.start(ctx, d, r.client.Share, r.client.CPUs))
		}
		return at(r, r.start(ctx, d.Kind))
	})
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	for _, r := range runners {
		if r.remote == nil {
			if err := r.waitAtGate(ready); err != nil {
				return at(r, err)
			}
		}
	}
	return nil
}

// gateScript waits until the other end of the pipe named by $0 has been opened and closed again, and then executes the
// command.
const gateScript = `read -r _ <"$0"; exec "$@"`

// start starts the generator up to its gate: a pipe of its own. Closing the pipes of all clients at once releases the
// generators together. (Processes take longer to start, one after another, than some trials last.)
func (r *runner) start(ctx context.Context, kind Kind) error {
	command, err := kind.Prepare(r.client.Share)
	if err != nil {
		return err
	}
	path := r.gatePath()
	if err := errors.Join(removeIfThere(path), unix.Mkfifo(path, 0o600)); err != nil {
		return fmt.Errorf("making the pipe %s: %w", path, err)
	}
	r.process, err = r.client.Start(ctx, append([]string{"/bin/sh", "-c", gateScript, path}, command...),
		&r.stdout, &r.stderr)
	return err
}

func (r *runner) gatePath() string { return filepath.Join(r.client.Share.Dir, "gate") }

// waitAtGate opens the other end of the pipe, which succeeds once the process reads from it.
func (r *runner) waitAtGate(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		gate, err := os.OpenFile(r.gatePath(), os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			r.gate = gate
			return nil
		}
		if !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("%w: %w", ErrGate, err)
		}
		select {
		case <-r.process.Done():
			return fmt.Errorf("%w: it ended before it began%s", ErrGate, r.lastOutput())
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%w within %v", ErrGate, gateTimeout)
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// wait returns when every generator has ended, by force if necessary.
func (d Drive) wait(ctx context.Context, runners []*runner) {
	var all sync.WaitGroup
	for _, r := range runners {
		all.Go(func() {
			if r.remote == nil {
				r.await(ctx, d.Bound)
				return
			}
			r.process = r.remote
			r.await(ctx, d.Bound+remoteGrace)
			if !r.hung {
				r.ended = r.remote.ended()
			}
		})
	}
	all.Wait()
}

// await returns when the generator has ended. It ends the generator by force after a bound.
func (r *runner) await(ctx context.Context, bound time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	select {
	case <-r.process.Done():
	case <-bounded.Done():
		r.hung = ctx.Err() == nil
		r.stop()
	}
	r.ended = time.Now()
}

// stopTimeout is how long a process may take to die.
const stopTimeout = 5 * time.Second

// stop ends the process even if the context of the run is over.
func (r *runner) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	// An error means that the process is gone already or that it cannot be killed. The end of the lab handles the
	// latter.
	_ = r.process.Stop(ctx)
}

func (r *runner) close() {
	if r.remote != nil {
		r.closeRemote()
		return
	}
	r.closeLocal()
}

func (r *runner) closeLocal() {
	if r.gate != nil {
		r.gate.Close() // the error of a second close means nothing
	}
	if r.process == nil {
		return
	}
	select {
	case <-r.process.Done():
	default:
		r.stop()
	}
}

// collect merges the clients' measurements.
func (d Drive) collect(runners []*runner) *Result {
	result := &Result{Latency: newLatency()}
	var problems, notes byClient
	var first, last time.Time
	for _, r := range runners {
		outcome, err := r.outcome(d)
		if err != nil {
			problems.add(r.client.Name, fmt.Sprintf("%s %v", d.Kind.Name(), err))
			continue
		}
		result.Waits.add(result.Requests, outcome.Waits, outcome.Requests)
		result.Requests += outcome.Requests
		result.Lost += outcome.Lost
		if seconds := outcome.Taken.Seconds(); seconds > 0 {
			result.PerSecond += float64(outcome.Requests) / seconds
		}
		result.Failed += outcome.Failed
		result.Transfer.add(outcome.Transfer)
		if outcome.Latency != nil {
			result.Latency.merge(outcome.Latency)
		}
		problems.add(r.client.Name, outcome.Problems...)
		notes.add(r.client.Name, outcome.Notes...)
		ended := r.ended.Add(-outcome.Drained)
		began := ended.Add(-outcome.Taken)
		if first.IsZero() || began.Before(first) {
			first = began
		}
		if ended.After(last) {
			last = ended
		}
	}
	result.Problems, result.Notes = problems.lines(), append(notes.lines(), remoteNotes(runners)...)
	result.Duration = last.Sub(first)
	switch {
	case len(result.Problems) > 0:
	case d.Kind.Bulk() && result.Transfer.Bytes == 0:
		result.Problems = append(result.Problems, "not one byte arrived")
	case !d.Kind.Bulk() && result.Requests == 0:
		result.Problems = append(result.Problems, "not one request was answered")
	}
	return result
}

// outcome reads the report of the client's generator, or returns why it cannot.
func (r *runner) outcome(d Drive) (*Outcome, error) {
	if r.remote != nil && !r.hung {
		return r.remote.outcome()
	}
	if r.hung {
		return nil, fmt.Errorf("did not end within %v of its start, so it was killed%s", d.Bound, r.lastOutput())
	}
	if err := r.process.Wait(); err != nil {
		// The process began as a shell, whose name would only confuse the reader.
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = exit
		}
		return nil, fmt.Errorf("died: %w%s", err, r.lastOutput())
	}
	outcome, err := d.Kind.Parse(r.client.Share, r.stdout.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, r.lastOutput())
	}
	return outcome, nil
}
