// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Bounds of the events in which a host falls silent, or resets its connections.
const (
	// noticeTimeout bounds the time until a subject must notice that a host is silent, and that the host is back.
	noticeTimeout = 30 * time.Second
	// noticeInterval is the interval of polls. It is longer in an emulated machine, where answers take CPU time from
	// the subject's checks.
	noticeInterval = 10 * time.Millisecond
	// silenceTail is how long the host stays silent after the subject has noticed: time for the retransmission of a
	// SYN, and for every port to be used again.
	silenceTail = 2500 * time.Millisecond
	// stayTimeout bounds the time until every port has an open connection, and until reset connections are open again.
	stayTimeout = 10 * time.Second
)

// disconnectHost disconnects a server's host and connects it again. The host stays disconnected until some time after
// the subject has noticed, or for the suite's time if the subject cannot show that it has noticed.
func disconnectHost(ctx context.Context, c *changeTrial) error {
	server, s := c.backends()[serverSilent], &silence{}
	c.silence = s
	s.cut = time.Now()
	if err := server.Disconnect(true); err != nil {
		return err
	}
	stayed := c.staySilent(ctx, server)
	// Also when the run is cancelled: later events need the host.
	if err := errors.Join(stayed, c.reconnectHost(server)); err != nil {
		return err
	}
	s.restored = time.Now()
	if noticing, ok := c.changing.(subject.Noticing); ok {
		back, err := c.waitFor(ctx, noticing.Reaches, server, true)
		s.recoveredAt = back
		return err
	}
	return nil
}

// staySilent waits for as long as the host is to be silent.
func (c *changeTrial) staySilent(ctx context.Context, server *lab.Host) error {
	noticing, ok := c.changing.(subject.Noticing)
	if !ok {
		return clock.Sleep(ctx, settingsOf(c.trial.By).Silence)
	}
	noticed, err := c.waitFor(ctx, noticing.Reaches, server, false)
	if err != nil {
		return err
	}
	c.silence.noticed = noticed
	return clock.Sleep(ctx, max(silenceTail, settingsOf(c.trial.By).Lap+time.Second))
}

// reconnectHost brings a silent host back as after a reboot: without its connections, and with a first packet to the
// balancer.
func (c *changeTrial) reconnectHost(server *lab.Host) error {
	destroyed := server.DestroySockets()
	if errors.Is(destroyed, lab.ErrNoSocketDestroy) {
		c.notes = append(c.notes, fmt.Sprintf("%s was back with the connections that it had: %v", server.Name,
			destroyed))
		destroyed = nil
	}
	return errors.Join(destroyed, server.Disconnect(false), server.SendDatagram(c.runner.Lab.Balancer))
}

// waitFor returns when a subject was first seen to reach a server, or no longer to reach it, by its counters or status.
func (c *changeTrial) waitFor(ctx context.Context, shows func(context.Context, *lab.Host) (bool, error),
	server *lab.Host, reached bool) (time.Time, error) {
	bound := c.runner.Options.Slowdown() * noticeTimeout
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		now, err := shows(ctx, server)
		if err == nil && now == reached {
			return time.Now(), nil
		}
		if waited := clock.Sleep(ctx, c.runner.Options.Slowdown()*noticeInterval); waited != nil {
			what := "to be gone"
			if reached {
				what = "to serve"
			}
			return time.Time{}, fmt.Errorf("%s was not shown %s within %v: %w", server.Name, what, bound,
				errors.Join(err, waited))
		}
	}
}

// write counts the losses before and after the silence was noticed.
func (s *silence) write(counts live.Counts, udp bool, m map[string]float64) {
	m[results.SilentSeconds] = s.restored.Sub(s.cut).Seconds()
	until := s.restored.Add(noticeTimeout) // beyond the event
	if !s.noticed.IsZero() {
		until = s.noticed
		m[results.NoticedSeconds] = s.noticed.Sub(s.cut).Seconds()
	}
	if !s.recoveredAt.IsZero() {
		m[results.BackSeconds] = s.recoveredAt.Sub(s.restored).Seconds()
	}
	split := func(all live.Timestamps, before, after string) {
		n := all.Before(until)
		m[before], m[after] = float64(n), float64(len(all)-n)
	}
	split(counts.LostSYNs, results.LostSYNsBefore, results.LostSYNsAfter)
	split(counts.ReusedLostAt, results.ReusedFailedBefore, results.ReusedFailedAfter)
	if udp {
		split(counts.LostQueries, results.UDPUnansweredBefore, results.UDPUnansweredAfter)
	}
}

// drainAndReset drains a server that holds connections from reused ports, lets it reset them, and waits until clients
// have opened connections from the same ports again. With direct server return the balancer does not see the resets.
func drainAndReset(ctx context.Context, c *changeTrial) error {
	err := c.resetDrained(ctx)
	if errors.Is(err, subject.ErrCannot) {
		err = errors.Join(err, undrain(ctx, c, nil))
	}
	return errors.Join(err, c.group.Go(ctx))
}

func (c *changeTrial) resetDrained(ctx context.Context) error {
	server := c.backends()[serverDrained]
	if _, err := c.group.Stay(ctx, stayTimeout); err != nil {
		return err
	}
	if err := c.apply(ctx, c.weighed(serverDrained, 0)); err != nil {
		return err
	}
	by, err := c.group.Stay(ctx, stayTimeout)
	if err != nil {
		return err
	}
	c.reconnected = &reconnections{openBefore: by[server.Name]}
	if err := server.DestroySockets(); errors.Is(err, lab.ErrNoSocketDestroy) {
		return fmt.Errorf("%w: %w", subject.ErrCannot, err)
	} else if err != nil {
		return err
	}
	return c.awaitAgain(ctx)
}

// awaitAgain waits until clients have opened as many connections again as the server had, or stayTimeout is over.
func (c *changeTrial) awaitAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stayTimeout)
	defer cancel()
	for {
		counts, err := c.group.Counts(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // the counts show how many came
		case err != nil:
			return err
		}
		var came uint64
		for _, n := range counts.Reconnected {
			came += n
		}
		if came >= c.reconnected.openBefore {
			return nil
		}
		if clock.Sleep(ctx, noticeInterval) != nil {
			return nil
		}
	}
}

// undrain lets the server get connections again.
func undrain(ctx context.Context, c *changeTrial, _ map[string]float64) error {
	return c.apply(ctx, c.weighed(serverDrained, 1))
}

// write adds the number of connections that were opened again, and how many of them reached the drained server, to the
// metrics.
func (a *reconnections) write(counts live.Counts, drained string, m map[string]float64) {
	m[results.ResetByDrained], m[results.CameAgain] = float64(a.openBefore), 0
	for _, n := range counts.Reconnected {
		m[results.CameAgain] += float64(n)
	}
	m[results.AgainToDrained] = float64(counts.Reconnected[drained])
}

// writeReused adds the fate of connections from reused ports to a result.
func (c *changeTrial) writeReused(counts live.Counts, got *results.Trial) {
	m := got.Metrics
	m[results.ReusedConnections] = float64(counts.ReusedAnswered)
	m[results.ReusedFailed] = float64(len(counts.ReusedLostAt))
	m[results.ReusedTaken], m[results.LostSYNs] = float64(counts.PortsInUse), float64(len(counts.LostSYNs))
	for _, cause := range slices.Sorted(maps.Keys(counts.ReusedFailed)) {
		got.Notes = append(got.Notes, fmt.Sprintf("connections from ports that are used again which failed: %d %s",
			counts.ReusedFailed[cause], cause))
	}
	if c.silence != nil {
		c.silence.write(counts, carriesUDP(c.trial.Point), m)
	}
	if c.fault != nil {
		c.fault.write(counts, carriesUDP(c.trial.Point), m)
		got.Notes = append(got.Notes, c.fault.notes()...)
	}
	if c.reconnected != nil {
		c.reconnected.write(counts, c.backends()[serverDrained].Name, m)
	}
}
