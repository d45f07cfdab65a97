// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// A worker on another machine brings a generator there to its gate, releases it and reads it. All generators are
// released at one moment. Each worker gets that moment in advance, in the time of its own clock, so the delay of a
// message does not matter.

// waiting holds the generators of this process that wait at their gates or run, by their host; a worker has one.
var waiting = struct {
	sync.Mutex
	runners map[*lab.Host]*runner
}{runners: map[*lab.Host]*runner{}}

// generatorSpec describes a generator that a worker has to bring to its gate.
type generatorSpec struct {
	Kind     string
	Settings json.RawMessage
	Share    Share
	CPUs     []int
}

var startTask = lab.NewTask("load-start", func(ctx context.Context, h *lab.Host, s generatorSpec) (struct{}, error) {
	kind, err := kindOf(s.Kind, s.Settings)
	if err != nil {
		return struct{}{}, err
	}
	r := &runner{kind: kind, client: Client{Name: h.Name, Share: s.Share, Start: StartOn(h, s.CPUs...)}}
	if other := exchange(h, r); other != nil {
		other.closeLocal()
	}
	ready, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	if err = r.start(ctx, kind); err == nil {
		err = r.waitAtGate(ready)
	}
	if err != nil {
		r.closeLocal()
	}
	return struct{}{}, err
})

// releaseOrder is the time when a generator is released, in nanoseconds of Unix time on the clock of its machine, and
// how long the generator may take from then.
type releaseOrder struct {
	At    int64
	Bound time.Duration
}

// generatorReport is the report of the end of a generator on a machine.
type generatorReport struct {
	// Ended is the time of the end on the machine's clock. Late is the delay of the release.
	Ended   int64
	Late    time.Duration
	Outcome *Outcome
	// Problem is the reason why there is no outcome.
	Problem string
}

var releaseTask = lab.NewTask("load-go", func(ctx context.Context, h *lab.Host, g releaseOrder) (generatorReport, error) {
	waiting.Lock()
	r := waiting.runners[h]
	waiting.Unlock()
	if r == nil {
		return generatorReport{}, errors.New("no load generator stands ready")
	}
	at := time.Unix(0, g.At)
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return generatorReport{}, ctx.Err()
	case <-timer.C:
	}
	r.gate.Close()
	end := generatorReport{Late: max(time.Since(at), 0)}
	r.await(ctx, g.Bound)
	end.Ended = r.ended.UnixNano()
	outcome, err := r.outcome(Drive{Kind: r.kind, Bound: g.Bound})
	end.Outcome = outcome
	if err != nil {
		end.Problem = err.Error()
	}
	exchange(h, nil)
	return end, nil
})

// stopTask ends a generator that waits at its gate or runs.
var stopTask = lab.NewTask("load-leave", func(_ context.Context, h *lab.Host, _ struct{}) (struct{}, error) {
	if r := exchange(h, nil); r != nil {
		r.closeLocal()
	}
	return struct{}{}, nil
})

// clockTask returns the time on a machine, in nanoseconds of Unix time.
var clockTask = lab.NewTask("clock", func(context.Context, *lab.Host, struct{}) (int64, error) {
	return time.Now().UnixNano(), nil
})

// exchange replaces a host's generator, and returns the previous one.
func exchange(h *lab.Host, r *runner) *runner {
	waiting.Lock()
	defer waiting.Unlock()
	other := waiting.runners[h]
	delete(waiting.runners, h)
	if r != nil {
		waiting.runners[h] = r
	}
	return other
}

// StartOn returns a Client's Start that runs a generator on a host, pinned to cpus if there are any. The generator does
// not end with the context, so that only Drive ends it.
func StartOn(host *lab.Host, cpus ...int) func(context.Context, []string, io.Writer, io.Writer) (Process, error) {
	return func(ctx context.Context, command []string, stdout, stderr io.Writer) (Process, error) {
		process, err := host.Start(context.WithoutCancel(ctx), lab.Command{
			Path: command[0], Args: command[1:], Stdout: stdout, Stderr: stderr, CPUs: cpus})
		if err != nil {
			return nil, err
		}
		return process, nil
	}
}

// remoteRunner is a client's generator on another machine. It is the runner's Process.
type remoteRunner struct {
	host *lab.Host
	// offset is how far that machine's clock is ahead of ours. It is uncertain by half of the shortest round trip.
	offset, uncertain time.Duration
	done              chan struct{}
	end               generatorReport
	err               error
}

// clockSamples is how often a clock is read; the reading with the shortest round trip counts (as with NTP, RFC 5905
// section 10: the least delay has the least error).
const clockSamples = 5

// start starts the generator up to its gate.
func (f *remoteRunner) start(ctx context.Context, d Drive, share Share, cpus []int) error {
	f.uncertain = math.MaxInt64
	for range clockSamples {
		sent := time.Now()
		there, err := clockTask.On(ctx, f.host, struct{}{})
		if err != nil {
			return err
		}
		if half := time.Since(sent) / 2; half < f.uncertain {
			f.uncertain, f.offset = half, time.Unix(0, there).Sub(sent.Add(half))
		}
	}
	settings, err := json.Marshal(d.Kind)
	if err == nil {
		_, err = startTask.On(ctx, f.host,
			generatorSpec{Kind: d.Kind.Name(), Settings: settings, Share: share, CPUs: cpus})
	}
	return err
}

// release schedules the release of the generator, and waits for its end in another goroutine.
func (f *remoteRunner) release(at time.Time, d Drive) {
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		f.end, f.err = releaseTask.On(context.Background(), f.host,
			releaseOrder{At: at.Add(f.offset).UnixNano(), Bound: d.Bound})
	}()
}

// ended returns when the generator ended, on our clock.
func (f *remoteRunner) ended() time.Time { return time.Unix(0, f.end.Ended).Add(-f.offset) }

func (f *remoteRunner) outcome() (*Outcome, error) {
	switch {
	case f.err != nil:
		return nil, f.err
	case f.end.Problem != "":
		return nil, errors.New(f.end.Problem)
	case f.end.Outcome == nil:
		return nil, errors.New("its machine says nothing of it")
	}
	return f.end.Outcome, nil
}

// Done implements Process.
func (f *remoteRunner) Done() <-chan struct{} { return f.done }

// Wait implements Process.
func (f *remoteRunner) Wait() error {
	<-f.done
	return f.err
}

// Stop implements Process.
func (f *remoteRunner) Stop(ctx context.Context) error {
	_, err := stopTask.On(ctx, f.host, struct{}{})
	return err
}

// closeRemote ends the process that waits at its gate, or runs, on the machine.
func (r *runner) closeRemote() {
	if r.remote.done != nil {
		select {
		case <-r.remote.done:
			return
		default:
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = r.remote.Stop(ctx) // if that fails, the worker ends its processes when it ends
}

// remoteGrace is how long a machine may take, beyond its generator's bound, to end the generator and to report the
// result.
const remoteGrace = 15 * time.Second

// releaseLead is the time between the message that schedules a start on machines and that start.
const releaseLead = 30 * time.Millisecond

// lateTolerance is how much later than the others a generator may begin without a note.
const lateTolerance = 10 * time.Millisecond

// release releases all generators at once.
func (d Drive) release(runners []*runner) {
	lead := time.Duration(0)
	for _, r := range runners {
		if r.remote != nil {
			lead = max(lead, releaseLead+4*r.remote.uncertain)
		}
	}
	at := time.Now().Add(lead)
	for _, r := range runners {
		if r.remote != nil {
			r.remote.release(at, d)
			continue
		}
		r.gate.Close()
	}
}

// remoteNotes describe how precisely the generators were released at the same moment.
func remoteNotes(runners []*runner) []string {
	var uncertain time.Duration
	var late byClient
	far := false
	for _, r := range runners {
		if r.remote == nil {
			continue
		}
		far = true
		uncertain = max(uncertain, r.remote.uncertain)
		if r.remote.end.Late > lateTolerance {
			late.add(r.client.Name, fmt.Sprintf("began %v late, for word of it came late",
				r.remote.end.Late.Round(time.Millisecond)))
		}
	}
	if !far {
		return nil
	}
	return append([]string{fmt.Sprintf("clients were released at one moment by their own clocks, which are known to %v",
		uncertain.Round(time.Microsecond))}, late.lines()...)
}

// eachRunner calls do for all runners, concurrently for those on other machines.
func eachRunner(runners []*runner, do func(r *runner) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(runners))
	for i, r := range runners {
		if r.remote != nil {
			all.Go(func() { errs[i] = do(r) })
			continue
		}
		if errs[i] = do(r); errs[i] != nil {
			break
		}
	}
	all.Wait()
	return errors.Join(errs...)
}
