// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// wireCPU has the tester's sender; the last core, which wireCPU is not, the processes of
// the subject.
const wireCPU = 0

// wireTrial is a trial with its subject up.
type wireTrial struct {
	runner  *bench.Runner
	trial   bench.Trial
	running subject.Running
	tester  *wire.Tester
	// last is the reading before the step that runs.
	last wireReading
	kept wireKept
	got  []results.Trial
	// blank has the trial's names filled in.
	blank results.Trial
}

// wireReading is the laboratory at a moment.
type wireReading struct {
	cpu   time.Duration // the balancer's
	drops map[string]uint64
}

func (kind) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) ([]results.Trial, error) {
	w := &wireTrial{runner: r, trial: t, running: running, blank: blank}
	var err error
	if w.tester, err = testerOf(r).of(ctx, w.spec()); err != nil {
		return nil, fmt.Errorf("setting up the tester: %w", err)
	}
	// The subject's processes have their core before other programs of the machine.
	if err := errors.Join(r.Lab.Balancer.Pin(bench.LastCPU()), r.Lab.Balancer.Renice(bench.FirstNice)); err != nil {
		return nil, err
	}
	if err := w.warmUp(ctx); err != nil {
		return nil, err
	}
	err = w.run(ctx)
	if len(w.got) > 0 && ctx.Err() != nil {
		// The steps until then are whole.
		return w.got, nil
	}
	return w.got, err
}

// spec is the tester's arrangement.
func (w *wireTrial) spec() wire.Spec {
	l := w.runner.Lab
	spec := wire.Spec{
		Target: w.running.Target(0), Reply: wire.ReplyToSender, CPU: wireCPU, Seed: uint64(w.trial.Repeat),
		Next: []net.HardwareAddr{l.Balancer.MAC}, Connections: wireRoom(w.trial.Form),
		DSCP: map[uint8]netip.Addr{subject.DSCPPoint: l.VIP4},
	}
	for i, client := range l.Clients {
		spec.Clients = append(spec.Clients, wire.Port{Name: client.Name, Interface: client.Interface, Do: client.Do,
			Sources: wireSources(i)})
	}
	for _, server := range l.Servers {
		spec.Servers = append(spec.Servers, wire.Port{Name: server.Name, Interface: server.Interface, Do: server.Do,
			Address: server.IPv4})
	}
	if w.trial.Subject.Can().DirectReplies {
		spec.Reply = wire.ReplyDirect
	}
	if direct(w.trial) {
		spec.Next = nil
		for _, server := range l.Servers {
			spec.Next = append(spec.Next, server.MAC)
		}
	}
	return spec
}

// direct says whether there is no balancer.
func direct(t bench.Trial) bool { return t.Subject.Name() == "direct" }

// room is how many connections the tester must tell apart in a step of so long.
func (w Wire) room(long time.Duration) int {
	if n := w.connections(); n > 0 {
		return n
	}
	rate := wireMostSetups
	if !w.sets() {
		rate = wireMostPackets
	}
	switch {
	case w.Search != nil:
		rate = w.Search.To
	case w.Rate > 0:
		rate = w.Rate
	}
	return int(min(float64(rate)*(long+w.WarmUp).Seconds()+1, wire.MaxConnections))
}

// wireRoom is the number of flows of the load of a form that needs most: so a tester does for all.
func wireRoom(f bench.Form) (most int) {
	for _, l := range f.Loads {
		most = max(most, own(l).room(l.Duration))
	}
	return most
}

// More connections, and packets, than a core makes a second.
const (
	wireMostSetups  = 1_500_000
	wireMostPackets = 5_000_000
)

// sets says whether the load sets connections up.
func (w Wire) sets() bool { return !w.udp() && w.Load != wire.SYNFlood }

// load is the tester's load, without warming up.
func (w Wire) load(long time.Duration) wire.Load {
	load := wire.Load{
		Kind: w.Load, Rate: float64(w.Rate), Connections: uint64(w.Connections), Duration: long,
		Outstanding: w.Outstanding,
		Settle:      w.Settle, Hold: w.Hold, Timeout: w.Timeout, Tries: w.Tries, Request: w.Request,
		Response: w.Response,
		Frame:    w.Frame, Question: w.Question,
	}
	if l := w.Ladder; l != nil {
		load.Ladder = &wire.Ladder{From: float64(l.From), To: float64(l.To), By: float64(l.Step),
			Connections: uint64(l.Connections)}
	}
	if s := w.Search; s != nil {
		load.Search = &wire.Search{From: float64(s.From), To: float64(s.To), Loss: s.Loss, Resolution: s.Resolution}
	}
	if f := w.SYNFlood; f != nil {
		load.Flood = &wire.Flood{Sources: wireFloodSources, Rate: float64(f.Rate)}
	}
	return load
}

// first is the rate that a load begins with; 0 is as much as can be.
func (w Wire) first() float64 {
	switch {
	case w.Ladder != nil:
		return float64(w.Ladder.From)
	case w.Search != nil:
		return float64(w.Search.From)
	}
	return float64(w.Rate)
}

// warmUp offers the first rate for a while. It is a load of its own, so that nothing of it is in the readings around
// the steps.
func (w *wireTrial) warmUp(ctx context.Context) error {
	by := *own(w.trial.By)
	if by.WarmUp == 0 {
		return nil
	}
	load := by.load(by.WarmUp)
	load.Ladder, load.Search, load.Flood, load.Connections, load.Hold = nil, nil, nil, 0, 0
	load.Rate = by.first()
	if load.Kind == wire.Capacity {
		load.Kind = wire.Setup
		load.Request, load.Response = 0, 0
	}
	if _, err := w.tester.Run(ctx, load, nil); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	return nil
}

// run puts the load on, and writes a result for each step; of bursts, for one.
func (w *wireTrial) run(ctx context.Context) (err error) {
	if w.last, err = w.read(); err != nil {
		return err
	}
	if own(w.trial.By).Bursts > 1 {
		return w.bursts(ctx)
	}
	return w.once(ctx)
}

// once puts the load on once.
func (w *wireTrial) once(ctx context.Context) error {
	stop, err := w.watch(ctx)
	if err != nil {
		return err
	}
	load := own(w.trial.By).load(w.trial.Duration)
	var failed error
	steps, err := w.tester.Run(ctx, load, func(step wire.Step) {
		if load.Search == nil && failed == nil {
			failed = w.step(ctx, step)
		}
	})
	err = errors.Join(err, failed, stop())
	if load.Search != nil && len(steps) > 0 {
		err = errors.Join(err, w.found(ctx, steps))
	}
	if load.Kind == wire.Capacity && len(w.got) > 0 {
		w.kept.write(&w.got[0])
	}
	return err
}

// read reads the laboratory between two steps.
func (w *wireTrial) read() (reading wireReading, err error) {
	l := w.runner.Lab
	if reading.cpu, err = l.Balancer.CPUTime(); err != nil {
		return reading, err
	}
	reading.drops, err = bench.DeviceDrops(l)
	return reading, err
}

// step writes the result of a step that has ended.
func (w *wireTrial) step(ctx context.Context, step wire.Step) error {
	reading, err := w.read()
	if err != nil {
		return err
	}
	full, err := w.full(ctx, step)
	if err != nil {
		return err
	}
	got := w.blank
	got.Params, got.Metrics = maps.Clone(w.blank.Params), map[string]float64{}
	if own(w.trial.By).Ladder != nil {
		got.Params[paramOffered] = int(step.Offered)
	}
	wireResult{w, step, w.last, reading}.write(&got)
	switch {
	case full == "":
	case step.Kind == wire.Setup:
		got.Valid = false
		got.Notes = append([]string{fullSetup + full}, got.Notes...)
	default:
		// The remains of sessions fill it at such a rate: that is a figure.
		got.Notes = append([]string{"it was full: " + full}, got.Notes...)
	}
	w.last = reading
	w.got = append(w.got, got)
	return nil
}

// Whole are the results of a trial that was ended early which are worth keeping: those of its whole steps.
func (kind) Whole(got []results.Trial) []results.Trial {
	return slices.DeleteFunc(slices.Clone(got), func(step results.Trial) bool { return !step.Valid })
}

// steps is how many results a trial of a packet-level ladder has; 0 of others.
func steps(t bench.Trial) int {
	if own(t.By) == nil || own(t.By).Ladder == nil {
		return 0
	}
	l := own(t.By).Ladder
	return (l.To-l.From)/l.Step + 1
}

// DropPartial takes the results of ladders that were ended early out of a run that is gone
// on with: they are climbed anew.
func (kind) DropPartial(r *bench.Runner, trials []bench.Trial) {
	for _, t := range trials {
		of := func(done results.Trial) bool { return t.Has(done) && done.Params[paramOffered] != nil }
		n := 0
		for _, done := range r.Results.Trials {
			if of(done) {
				n++
			}
		}
		if n < steps(t) {
			r.Results.Trials = slices.DeleteFunc(r.Results.Trials, of)
		}
	}
}

// bursts puts the load on several times. The trial's result is the fastest burst, and
// samples has the others too. It has none if it is ended early: fewer bursts find less.
func (w *wireTrial) bursts(ctx context.Context) error {
	for i := range own(w.trial.By).Bursts {
		if err := w.burst(ctx, i); err != nil {
			w.got = nil
			return err
		}
	}
	w.got = []results.Trial{fastest(w.got)}
	return nil
}

// burst is the burst of this number, after the pause between two. The balancer's work in the pause is not counted.
func (w *wireTrial) burst(ctx context.Context, number int) (err error) {
	if number > 0 && own(w.trial.By).Pause > 0 {
		if err := clock.Sleep(ctx, own(w.trial.By).Pause); err != nil {
			return err
		}
		if w.last, err = w.read(); err != nil {
			return err
		}
	}
	return w.once(ctx)
}

// fastest is the burst with the highest rate. One in which the balancer was full goes
// before: it is not valid, and would otherwise make room for a slower one that is. One in
// which nothing came to anything is slow and no more: the tester's core may have stood still.
func fastest(bursts []results.Trial) results.Trial {
	var rates []float64
	for _, b := range bursts {
		rates = append(rates, b.Metrics[wireRate(b)])
	}
	best := slices.MaxFunc(bursts, func(a, b results.Trial) int {
		switch full := wasFull(a); {
		case full != wasFull(b) && full:
			return 1
		case full != wasFull(b):
			return -1
		}
		return int(a.Metrics[wireRate(a)] - b.Metrics[wireRate(b)])
	})
	best.Samples = map[string][]float64{wireRate(best): rates}
	return best
}

// wasFull says whether a result is not valid because the balancer was full.
func wasFull(t results.Trial) bool {
	return len(t.Notes) > 0 && strings.HasPrefix(t.Notes[0], fullSetup)
}
