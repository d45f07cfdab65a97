// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/numbered"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// numberedFlows is the number of local ports that send the numbered stream.
const numberedFlows = 32

// Demand requests separate queues for the way back if a load has a numbered stream.
func (kind) Demand(f bench.Form, spec *lab.Spec) {
	spec.BackQueues = slices.ContainsFunc(f.Loads,
		func(l bench.Load) bool { return settingsOf(l).NumberedPerSecond > 0 })
}

// startNumbered starts the stream that the suite asks for if the subject forwards single packets. A proxy would make
// each a session.
func (c *changeTrial) startNumbered(ctx context.Context) (err error) {
	rate := settingsOf(c.trial.By).NumberedPerSecond
	if rate == 0 {
		return nil
	}
	if !c.trial.Subject.Can().Packets {
		c.notes = append(c.notes, "it does not send packets on by themselves, so it has no numbered stream")
		return nil
	}
	n := &numberedStream{ended: make(chan error, 1), last: time.Now()}
	n.stream, err = numbered.New(numbered.Options{Target: c.changing.Target(0), Rate: rate, Flows: numberedFlows})
	if err != nil {
		return err
	}
	if err := n.count(c.runner.Lab); err != nil {
		return errors.Join(err, n.stream.Close())
	}
	if n.drops, err = bench.DeviceDrops(c.runner.Lab); err != nil {
		return errors.Join(err, n.stream.Close())
	}
	ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		n.ended <- c.runner.Lab.Clients[0].Do(func() error {
			// Only for this thread, which ends with the stream: the stream must keep its rate.
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, bench.FirstNice); err != nil {
				return fmt.Errorf("giving the numbered stream the CPU first: %w", err)
			}
			return n.stream.Send(ctx)
		})
	}()
	c.numbered = n
	return nil
}

// count starts counting the numbers at the servers' devices, and at the switch's port to the balancer.
func (n *numberedStream) count(l *lab.Lab) error {
	for _, server := range l.Servers {
		device, _, err := server.Indexes()
		if err == nil {
			err = server.Do(func() error { return n.stream.Receive(device) })
		}
		if err != nil {
			return fmt.Errorf("receiving the numbered stream on %s: %w", server.Name, err)
		}
	}
	_, port, err := l.Balancer.Indexes()
	if err == nil {
		err = l.Switch.Do(func() error { return n.stream.Watch(port) })
	}
	if err != nil {
		return fmt.Errorf("watching the numbered stream at the balancer: %w", err)
	}
	return nil
}

// close ends the stream.
func (n *numberedStream) close() error {
	if n == nil {
		return nil
	}
	n.cancel()
	return errors.Join(<-n.ended, n.stream.Close())
}

// write adds the fate of the numbers since the last event to a result.
func (n *numberedStream) write(ctx context.Context, c *changeTrial, got *results.Trial) error {
	if n == nil {
		return nil
	}
	select {
	case err := <-n.ended:
		n.ended <- err
		return fmt.Errorf("the numbered stream has ended: %w", err)
	default:
	}
	from, to, now := n.counted, n.stream.Sent(), time.Now()
	gaps, err := n.stream.Missing(ctx, from, to)
	if err != nil {
		return err
	}
	twice, err := n.stream.Twice()
	if err != nil {
		return err
	}
	drops, err := bench.DeviceDrops(c.runner.Lab)
	if err != nil {
		return err
	}
	lost := map[numbered.Place]uint64{}
	for _, g := range gaps {
		lost[g.Place] += g.Length
	}
	before, balancer, behind := lost[numbered.Before], lost[numbered.Balancer], lost[numbered.Behind]
	got.Metrics[results.NumberedSent] = float64(to - from)
	got.Metrics[results.NumberedMissing] = float64(before + balancer + behind)
	got.Metrics[results.NumberedBefore], got.Metrics[results.NumberedBalancer],
		got.Metrics[results.NumberedBehind] = float64(before), float64(balancer), float64(behind)
	got.Metrics[results.NumberedTwice] = float64(twice - n.twice)
	got.Metrics[results.NumberedPerSecond] = float64(to-from) / now.Sub(n.last).Seconds()
	if len(gaps) > 0 {
		got.Notes = append(got.Notes, c.gapNote(gaps), dropNote(n.drops, drops))
	}
	n.counted, n.twice, n.last, n.drops = to, twice, now, drops
	return nil
}

// placeTexts describe where numbered packets were lost.
var placeTexts = map[numbered.Place]string{
	numbered.Before: "before the balancer", numbered.Balancer: "at the balancer",
	numbered.Behind: "behind the balancer",
}

// gapNote describes where the first runs of missing numbers were lost and when they were sent.
func (c *changeTrial) gapNote(gaps []numbered.Gap) string {
	var runs []string
	for _, g := range gaps[:min(len(gaps), maxSamples)] {
		runs = append(runs, fmt.Sprintf("%d numbered packets, lost %s, sent within %v, %s", g.Length,
			placeTexts[g.Place],
			g.To.Sub(g.From).Round(time.Millisecond), c.when(g.From)))
	}
	return fmt.Sprintf("missing in %d places: %s", len(gaps), strings.Join(runs, "; "))
}

// dropNote lists the devices that dropped frames of any kind between two readings.
func dropNote(before, after map[string]uint64) string {
	var dropped []string
	for _, sender := range slices.Sorted(maps.Keys(after)) {
		if n := after[sender] - before[sender]; n > 0 {
			dropped = append(dropped, fmt.Sprintf("%s %d", sender, n))
		}
	}
	if len(dropped) == 0 {
		return "no device or queue of the laboratory dropped a frame meanwhile"
	}
	return "frames that devices and queues of the laboratory dropped meanwhile, by sender: " +
		strings.Join(dropped, ", ")
}

// when describes the position of a moment among the changes of the event.
func (c *changeTrial) when(at time.Time) string {
	number := 0
	for number < len(c.began) && !c.began[number].After(at) {
		number++
	}
	if number == 0 {
		return "before the first change"
	}
	after := at.Sub(c.began[number-1]).Round(time.Millisecond)
	return fmt.Sprintf("%v after change %d began, which took %v", after, number,
		c.took[number-1].Round(time.Millisecond))
}

// quiet lets some time pass: losses in that time are without any change.
func quiet(ctx context.Context, c *changeTrial) error {
	return clock.Sleep(ctx, settingsOf(c.trial.By).Quiet)
}
