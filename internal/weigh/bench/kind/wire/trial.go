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

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

func (kind) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) ([]results.Trial, error) {
	w := &wireTrial{runner: r, trial: t, running: running, blank: blank}
	var err error
	if w.tester, err = testerOf(r).testerFor(ctx, w.spec()); err != nil {
		return nil, fmt.Errorf("setting up the tester: %w", err)
	}
	// The subject's processes have priority on their core over other programs of the machine.
	if err := errors.Join(r.Lab.Balancer.Pin(bench.LastCPU()), r.Lab.Balancer.Renice(bench.FirstNice)); err != nil {
		return nil, err
	}
	if err := w.warmUp(ctx); err != nil {
		return nil, err
	}
	err = w.run(ctx)
	if len(w.got) > 0 && ctx.Err() != nil {
		// The steps until then are complete.
		return w.got, nil
	}
	return w.got, err
}

// spec returns the tester's arrangement.
func (w *wireTrial) spec() wire.Spec {
	l := w.runner.Lab
	spec := wire.Spec{
		// The last core, which is another one, has the processes of the subject.
		Target: w.running.Target(0), Reply: wire.ReplyToSender, CPU: bench.FirstCPU(), Seed: uint64(w.trial.Repeat),
		Next: []net.HardwareAddr{l.Balancer.MAC}, Connections: maxFlows(w.trial.Form),
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

// warmUp offers the first rate for a while. It is a separate load, so that the readings around the steps contain
// nothing of it.
func (w *wireTrial) warmUp(ctx context.Context) error {
	by := *settingsOf(w.trial.By)
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

// run runs the load, and writes a result for each step, or one result for all bursts.
func (w *wireTrial) run(ctx context.Context) (err error) {
	if w.last, err = w.read(); err != nil {
		return err
	}
	if settingsOf(w.trial.By).Bursts > 1 {
		return w.bursts(ctx)
	}
	return w.once(ctx)
}

// once runs the load once.
func (w *wireTrial) once(ctx context.Context) error {
	stop, err := w.watch(ctx)
	if err != nil {
		return err
	}
	load := settingsOf(w.trial.By).load(w.trial.Duration)
	var failed error
	steps, err := w.tester.Run(ctx, load, func(step wire.Step) {
		if load.Search == nil && failed == nil {
			failed = w.step(ctx, step)
		}
	})
	err = errors.Join(err, failed, stop())
	if load.Search != nil && len(steps) > 0 {
		err = errors.Join(err, w.writeSearchResult(ctx, steps))
	}
	if load.Kind == wire.Capacity && len(w.got) > 0 {
		w.stored.write(&w.got[0])
	}
	return err
}

// read takes a reading of the laboratory between two steps.
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
	full, err := w.fullReason(ctx, step)
	if err != nil {
		return err
	}
	got := w.blank
	got.Params, got.Metrics = maps.Clone(w.blank.Params), map[string]float64{}
	if settingsOf(w.trial.By).Ladder != nil {
		got.Params[paramOffered] = int(step.Offered)
	}
	wireResult{w, step, w.last, reading}.write(&got)
	switch {
	case full == "":
	case step.Kind == wire.Setup:
		got.Valid = false
		got.Notes = append([]string{fullSetup + full}, got.Notes...)
	default:
		// At such a rate, remains of sessions fill the subject, so this is a figure.
		got.Notes = append([]string{"it was full: " + full}, got.Notes...)
	}
	w.last = reading
	w.got = append(w.got, got)
	return nil
}

// CompleteSteps returns the results of a cancelled trial that are worth keeping: those of its complete steps.
func (kind) CompleteSteps(got []results.Trial) []results.Trial {
	return slices.DeleteFunc(slices.Clone(got), func(step results.Trial) bool { return !step.Valid })
}

// steps returns the number of results of a ladder's trial; 0 for other loads.
func steps(t bench.Trial) int {
	if settingsOf(t.By) == nil || settingsOf(t.By).Ladder == nil {
		return 0
	}
	l := settingsOf(t.By).Ladder
	return (l.To-l.From)/l.Step + 1
}

// DropPartial removes the results of cancelled ladders from a run that is resumed: these ladders run again.
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

// bursts runs the load several times. The trial's result is the fastest burst, and its samples include the others. A
// cancelled trial has no result: fewer bursts find a lower maximum.
func (w *wireTrial) bursts(ctx context.Context) error {
	for i := range settingsOf(w.trial.By).Bursts {
		if err := w.burst(ctx, i); err != nil {
			w.got = nil
			return err
		}
	}
	w.got = []results.Trial{fastest(w.got)}
	return nil
}

// burst runs one burst, after the pause between two bursts. The balancer's work in the pause is not counted.
func (w *wireTrial) burst(ctx context.Context, number int) (err error) {
	if number > 0 && settingsOf(w.trial.By).Pause > 0 {
		if err := clock.Sleep(ctx, settingsOf(w.trial.By).Pause); err != nil {
			return err
		}
		if w.last, err = w.read(); err != nil {
			return err
		}
	}
	return w.once(ctx)
}

// fastest returns the burst with the highest rate. A burst in which the balancer was full takes precedence: it is
// invalid, and must not be replaced by a slower valid one. A burst without results only counts as slow: the tester's
// core may have been stalled.
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

// wasFull reports whether a result is not valid because the balancer was full.
func wasFull(t results.Trial) bool {
	return len(t.Notes) > 0 && strings.HasPrefix(t.Notes[0], fullSetup)
}

// writeSearchResult writes the result of a search: the highest rate whose losses were within the bound.
func (w *wireTrial) writeSearchResult(ctx context.Context, steps []wire.Step) error {
	search := settingsOf(w.trial.By).Search
	var tried []string
	var tries []wireTry
	for _, s := range steps {
		try := wireTry{Step: s}
		if s.Begun > 0 {
			try.lost = 1 - float64(wireResult{wireTrial: w, step: s}.done())/float64(s.Begun)
		}
		tries = append(tries, try)
		tried = append(tried, fmt.Sprintf("%.0f/s lost %.3g %%", s.Offered, try.lost*100))
	}
	best, above := bestTry(tries, search.Loss)
	if best < 0 {
		return fmt.Errorf("no rate from %d a second on lost at most %g: %s", search.From, search.Loss,
			strings.Join(tried, ", "))
	}
	if err := w.step(ctx, steps[best]); err != nil {
		return err
	}
	got := &w.got[len(w.got)-1]
	// If the best rate filled the subject, the result says so already.
	if full := w.reachedLimit(steps); full != "" && got.Valid {
		got.Valid = false
		got.Notes = append([]string{fullSetup + full}, got.Notes...)
	}
	if above >= 0 && tries[above].lost <= search.Loss && !steps[above].Interrupted {
		got.Saturated = results.SaturatedClient
		got.Notes = append(got.Notes,
			fmt.Sprintf("at %.0f/s it was the tester that did not keep up: what is in between may carry more than was found", steps[above].Offered))
	}
	// The readings enclose all tried rates.
	delete(got.Metrics, results.BalancerCPUUsPerConnection)
	got.Notes = append(got.Notes, "rates that were tried: "+strings.Join(tried, ", "))
	return nil
}
