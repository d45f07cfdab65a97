// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/bench/subject"
	"github.com/jeoul/jeoul/internal/numbered"
	"github.com/jeoul/jeoul/internal/results"
)

// numberedFlows is from how many local ports the numbered stream is sent.
const numberedFlows = 32

// numberedStream is a stream of numbered datagrams on its way from the first client to the
// service.
type numberedStream struct {
	stream *numbered.Stream
	cancel context.CancelFunc
	// ended has what the sender returned.
	ended chan error
	// counted are the numbers that belong to events before, and twice those that came twice.
	counted, twice uint64
	// last is when the last event's numbers were read.
	last time.Time
}

// startNumbered starts the stream that the suite asks for, if the subject sends packets on by
// themselves: a proxy makes each a session.
func (c *changeTrial) startNumbered(ctx context.Context) (err error) {
	rate := c.trial.By.Changes.NumberedPerSecond
	if rate == 0 {
		return nil
	}
	if !subject.ForwardsPackets(c.trial.Subject) {
		c.notes = append(c.notes, "it does not send packets on by themselves, so it has no numbered stream")
		return nil
	}
	n := &numberedStream{ended: make(chan error, 1), last: time.Now()}
	n.stream, err = numbered.New(numbered.Options{Target: c.changing.Target(0), Rate: rate, Flows: numberedFlows})
	if err != nil {
		return err
	}
	for _, server := range c.runner.lab.Servers {
		device, _, err := server.Indexes()
		if err == nil {
			err = server.Do(func() error { return n.stream.Receive(device) })
		}
		if err != nil {
			return errors.Join(fmt.Errorf("receiving the numbered stream on %s: %w", server.Name, err), n.stream.Close())
		}
	}
	ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		n.ended <- c.runner.lab.Clients[0].Do(func() error {
			// Of this thread alone, which ends with the stream: a rate is to be kept.
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, firstNice); err != nil {
				return fmt.Errorf("giving the numbered stream the CPU first: %w", err)
			}
			return n.stream.Send(ctx)
		})
	}()
	c.numbered = n
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

// write writes down what became of the numbers since the last event.
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
	var missing uint64
	for _, g := range gaps {
		missing += g.Length
	}
	got.Metrics[results.NumberedSent] = float64(to - from)
	got.Metrics[results.NumberedMissing] = float64(missing)
	got.Metrics[results.NumberedTwice] = float64(twice - n.twice)
	got.Metrics[results.NumberedPerSecond] = float64(to-from) / now.Sub(n.last).Seconds()
	got.Notes = append(got.Notes, c.gapNotes(gaps)...)
	n.counted, n.twice, n.last = to, twice, now
	return nil
}

// gapNotes say of the first runs of missing numbers when they were sent.
func (c *changeTrial) gapNotes(gaps []numbered.Gap) (notes []string) {
	for i, g := range gaps[:min(len(gaps), maxSamples)] {
		note := fmt.Sprintf("%d numbered packets, sent within %v, %s", g.Length, g.To.Sub(g.From).Round(time.Millisecond), c.when(g.From))
		if i == 0 {
			notes = append(notes, fmt.Sprintf("missing in %d places: %s", len(gaps), note))
		} else {
			notes[0] += "; " + note
		}
	}
	return notes
}

// when says where a moment is among the changes of the event.
func (c *changeTrial) when(at time.Time) string {
	number := 0
	for number < len(c.began) && !c.began[number].After(at) {
		number++
	}
	if number == 0 {
		return "before the first change"
	}
	after := at.Sub(c.began[number-1]).Round(time.Millisecond)
	return fmt.Sprintf("%v after change %d began, which took %v", after, number, c.took[number-1].Round(time.Millisecond))
}

// quiet lets some time pass: what is lost in it is lost without any change.
func quiet(ctx context.Context, c *changeTrial) error {
	return pause(ctx, c.trial.By.Changes.Quiet)
}
