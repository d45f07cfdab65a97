// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/prometheus/procfs"
)

// showBound is the time limit for the effect of a change to show.
func (c *changeTrial) showBound() time.Duration {
	return 2*settingsOf(c.trial.By).timeout() + 2*settingsOf(c.trial.By).pace() + 10*time.Second
}

// event runs one event and counts its effects. An event that the subject cannot do makes the result invalid, with the
// reason; an error ends the trial.
func (c *changeTrial) event(ctx context.Context, e changeEvent) (results.Trial, error) {
	got := c.blank
	got.Params = maps.Clone(got.Params)
	got.Params[paramEvent] = e.name
	got.Notes, got.Metrics = slices.Clone(c.notes), map[string]float64{}
	if e.prepare != nil {
		if err := e.prepare(ctx, c); err != nil {
			return c.invalidOnError(got, err)
		}
	}
	c.began, c.took, c.moved, c.silence, c.fault, c.reconnected = nil, nil, nil, nil, nil, nil
	err := c.count(ctx, e, &got)
	if err == nil && e.after != nil {
		err = e.after(ctx, c, got.Metrics)
	}
	return c.invalidOnError(got, err)
}

// invalidOnError marks the result of a failed event as invalid. If the subject cannot do the event, the trial
// continues.
func (c *changeTrial) invalidOnError(got results.Trial, err error) (results.Trial, error) {
	if err == nil {
		return got, nil
	}
	got.Valid, got.Metrics, got.Backends = false, map[string]float64{}, nil
	got.Notes = []string{err.Error()}
	if errors.Is(err, subject.ErrCannot) {
		return got, nil
	}
	return got, err
}

// count runs an event between two readings of all counters.
func (c *changeTrial) count(ctx context.Context, e changeEvent, got *results.Trial) error {
	if err := c.group.Begin(ctx); err != nil {
		return err
	}
	watched, err := c.watch(ctx)
	if err != nil {
		return err
	}
	probing := probe.New(c.runner.Lab)
	if err := probing.Begin(); err != nil {
		return errors.Join(err, watched.end(ctx))
	}
	changed := e.change(ctx, c)
	if changed != nil {
		return errors.Join(changed, watched.end(ctx))
	}
	counts, settled := c.group.Settle(ctx, c.showBound())
	if err := errors.Join(probing.End(), watched.end(ctx)); err != nil {
		return err
	}
	if settled != nil {
		got.Notes = append([]string{settled.Error()}, got.Notes...)
	}
	got.Valid = true
	reading := probing.Reading()
	got.Saturated = c.saturated(reading, got)
	got.Metrics[results.BalancerCPUCores] = balancerCores(reading)
	got.Metrics[results.DurationSeconds] = time.Since(watched.began).Seconds()
	c.writeCounts(e, counts, got)
	watched.write(got.Metrics)
	c.writeChanges(got.Metrics)
	c.writeProcesses(got.Metrics)
	if err := c.numbered.write(ctx, c, got); err != nil {
		return err
	}
	got.Notes = append(got.Notes, c.changing.Notes()...)
	return nil
}

// saturated names the part that was the bottleneck, and adds a note with the reason.
func (c *changeTrial) saturated(reading probe.Reading, got *results.Trial) results.Part {
	part, why := probe.Saturated(reading.Parts, reading.Idle, float64(c.runner.Limits.Cores))
	got.Notes = append(got.Notes, why)
	return part
}

func balancerCores(reading probe.Reading) float64 {
	for _, part := range reading.Parts {
		if part.Part == results.SaturatedBalancer {
			return part.Cores
		}
	}
	return 0
}

// leaves reports whether a server leaves in an event, or left before.
func (c *changeTrial) leaves(e changeEvent, server string) bool {
	return c.left[server] || slices.ContainsFunc(e.leaves, func(i int) bool { return c.backends()[i].Name == server })
}

// brokenMetrics maps causes of breaks to metrics.
var brokenMetrics = map[live.Cause]string{
	live.Reset: results.BrokenReset, live.Closed: results.BrokenClosed, live.Silent: results.BrokenSilent,
	live.Moved: results.BrokenMoved, live.Wrong: results.BrokenWrong,
}

// writeCounts adds the fate of connections and queries to a result.
func (c *changeTrial) writeCounts(e changeEvent, counts live.Counts, got *results.Trial) {
	m := got.Metrics
	m[results.Broken], m[results.Ended] = 0, 0
	for _, name := range brokenMetrics {
		m[name] = 0
	}
	for server, causes := range counts.Broken {
		for cause, n := range causes {
			if c.leaves(e, server) {
				m[results.Ended] += float64(n)
				continue
			}
			older := c.countOpenedBefore(counts, server, cause)
			m[results.Ended] += float64(older)
			n -= older
			m[results.Broken] += float64(n)
			if name, ok := brokenMetrics[cause]; ok {
				m[name] += float64(n)
			}
		}
	}
	c.writeAges(e, counts, m)
	all := c.breaks(e, counts)
	for i, b := range all[:min(len(all), maxSamples)] {
		if i == 0 {
			got.Notes = append(got.Notes, "among what broke: "+c.describeBreak(b))
		} else {
			got.Notes[len(got.Notes)-1] += "; " + c.describeBreak(b)
		}
	}
	c.writeNew(counts, got)
	c.writeReused(counts, got)
	c.writeUDP(e, counts, m)
	m[results.Requests] = float64(counts.Requests)
	if l := counts.Percentiles; l != nil {
		m[results.LatencyMsP50], m[results.LatencyMsP99], m[results.LatencyMsMax] = l.P50, l.P99, l.Max
	}
	for _, server := range c.backends() {
		got.Backends = append(got.Backends, results.Backend{
			Name: server.Name, Address: server.IPv4.String(), Connections: counts.Held[server.Name]})
		m[results.Connections] += float64(counts.Held[server.Name])
	}
}

// openedBeforeRemoval reports whether a broken connection was opened before its server was last away. Such connections
// end with their server, and this one only sent no request while the server was away.
func (c *changeTrial) openedBeforeRemoval(b live.Break) bool {
	away, ok := c.lastRemoved[b.Server]
	return ok && time.Since(away) < b.Age
}

// countOpenedBefore counts the breaks of a server and a cause that openedBeforeRemoval reports.
func (c *changeTrial) countOpenedBefore(counts live.Counts, server string, cause live.Cause) (n uint64) {
	for _, b := range counts.Breaks {
		if b.Server == server && b.Cause == cause && c.openedBeforeRemoval(b) {
			n++
		}
	}
	return n
}

// breaks returns the broken connections whose servers stayed.
func (c *changeTrial) breaks(e changeEvent, counts live.Counts) []live.Break {
	return slices.DeleteFunc(slices.Clone(counts.Breaks), func(b live.Break) bool {
		return c.leaves(e, b.Server) || c.openedBeforeRemoval(b)
	})
}

// writeNew adds the fate of new connections to a result.
func (c *changeTrial) writeNew(counts live.Counts, got *results.Trial) {
	m := got.Metrics
	m[results.NewConnections], m[results.NewFailed], m[results.NewToLeft] = float64(counts.Opened), 0, 0
	for _, cause := range slices.Sorted(maps.Keys(counts.Failed)) {
		n := counts.Failed[cause]
		m[results.NewFailed] += float64(n)
		got.Notes = append(got.Notes, fmt.Sprintf("%d new connections failed: %s", n, cause))
	}
	for _, server := range c.backends() {
		if c.left[server.Name] || c.service.Weight(server) == 0 {
			m[results.NewToLeft] += float64(counts.Late[server.Name])
		}
	}
}

// writeUDP adds the fate of UDP queries to the metrics.
func (c *changeTrial) writeUDP(e changeEvent, counts live.Counts, m map[string]float64) {
	if !carriesUDP(c.trial.Point) {
		return
	}
	m[results.UDPQueries], m[results.UDPUnanswered] = float64(counts.Queries), float64(counts.Unanswered)
	m[results.UDPMoved], m[results.UDPMovedOfLeft] = 0, 0
	for server, n := range counts.UDPMoved {
		if c.leaves(e, server) {
			m[results.UDPMovedOfLeft] += float64(n)
		} else {
			m[results.UDPMoved] += float64(n)
		}
	}
}

// writeChanges adds the durations of the changes to the metrics.
func (c *changeTrial) writeChanges(m map[string]float64) {
	m[results.Applied] = float64(len(c.took))
	var sum, most time.Duration
	for _, took := range c.took {
		sum += took
		most = max(most, took)
	}
	if len(c.took) > 0 {
		m[results.AppliedMsMean] = float64(sum.Microseconds()) / 1e3 / float64(len(c.took))
		m[results.AppliedMsMax] = float64(most.Microseconds()) / 1e3
	}
}

// writeProcesses adds the subject's number of processes and use of memory to the metrics. A process that has ended
// since is left out.
func (c *changeTrial) writeProcesses(m map[string]float64) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return
	}
	m[results.BalancerProcesses], m[results.BalancerMemoryBytes] = 0, 0
	for _, pid := range c.changing.PIDs() {
		process, err := proc.Proc(pid)
		if err != nil {
			continue
		}
		if stat, err := process.Stat(); err == nil {
			m[results.BalancerProcesses]++
			m[results.BalancerMemoryBytes] += float64(stat.ResidentMemory())
		}
	}
}

// watch reads the counters of backends and balancer from the start of an event to its end.
type watch struct {
	c     *changeTrial
	began time.Time
	// resets is the number of resets that the backends had sent before the event, resetsAfter the number after it.
	resets, resetsAfter uint64
	tracking            subject.Tracking // nil if the subject reports no flows
	before, after, most subject.Tracked
	cancel              context.CancelFunc
	polling             sync.WaitGroup
}

// watchInterval is the interval between two readings of the number of tracked flows.
const watchInterval = 100 * time.Millisecond

// watch begins to watch; the caller must end it.
func (c *changeTrial) watch(ctx context.Context) (w *watch, err error) {
	w = &watch{c: c, began: time.Now()}
	if w.resets, err = c.resets(); err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	if tracking, ok := c.changing.(subject.Tracking); ok {
		if w.before, err = tracking.Tracked(ctx); err != nil {
			w.cancel()
			return nil, err
		}
		w.tracking, w.most = tracking, w.before
		w.polling.Go(func() { w.poll(ctx) })
	}
	return w, nil
}

// poll keeps the maximum of what is tracked. It skips readings that fail.
func (w *watch) poll(ctx context.Context) {
	for clock.Sleep(ctx, watchInterval) == nil {
		if now, err := w.tracking.Tracked(ctx); err == nil {
			w.most = subject.Tracked{Flows: max(w.most.Flows, now.Flows), Bytes: max(w.most.Bytes, now.Bytes)}
		}
	}
}

func (w *watch) end(ctx context.Context) (err error) {
	w.cancel()
	w.polling.Wait()
	if w.tracking != nil {
		if w.after, err = w.tracking.Tracked(ctx); err != nil {
			return err
		}
	}
	w.resetsAfter, err = w.c.resets()
	return err
}

func (w *watch) write(m map[string]float64) {
	m[results.BackendResets] = float64(w.resetsAfter - w.resets)
	if w.tracking == nil {
		return
	}
	m[results.TrackedFlowsBefore] = float64(w.before.Flows)
	m[results.TrackedFlowsMax] = float64(max(w.most.Flows, w.after.Flows))
	m[results.TrackedFlowsAfter] = float64(w.after.Flows)
	if bytes := max(w.most.Bytes, w.after.Bytes); bytes > 0 {
		m[results.TrackedTableBytes] = float64(bytes)
	}
}

// resets returns the number of TCP resets that servers have sent.
func (c *changeTrial) resets() (uint64, error) {
	const sent = "TcpOutRsts"
	var sum uint64
	for _, server := range c.backends() {
		counters, err := server.NetStat(sent)
		if err != nil {
			return 0, err
		}
		sum += counters[sent]
	}
	return sum, nil
}

// A balancer hands over a flow within half a second after it is proven. So a younger connection may break when packets
// move to another balancer; an older one may not.

// knownAge is the age from which balancers know each other's connections.
const knownAge = time.Second

// ageWhenMoved returns how old a broken connection was when packets last moved between balancers before the break was
// found, and how long after that move it was found. The age is negative if the connection was opened after the move. ok
// is false if no such move happened.
func (c *changeTrial) ageWhenMoved(b live.Break) (age, after time.Duration, change int, ok bool) {
	for i, moved := range c.moved {
		if since := b.At.Sub(moved); since >= 0 {
			age, after, change, ok = b.Age-since, since, i, true
		}
	}
	return age, after, change, ok
}

// writeAges counts broken connections by their age when packets moved. A connection that broke before the first move
// had no balancer to which it could be handed over, and counts as older.
func (c *changeTrial) writeAges(e changeEvent, counts live.Counts, m map[string]float64) {
	if len(c.moved) == 0 {
		return
	}
	m[results.BrokenYoung], m[results.BrokenOlder] = 0, 0
	for _, b := range c.breaks(e, counts) {
		if age, _, _, moved := c.ageWhenMoved(b); moved && age < knownAge {
			m[results.BrokenYoung]++
		} else {
			m[results.BrokenOlder]++
		}
	}
}

// describeBreak describes a broken connection and when it broke.
func (c *changeTrial) describeBreak(b live.Break) string {
	if len(c.moved) == 0 {
		return b.String()
	}
	age, after, change, moved := c.ageWhenMoved(b)
	const exact = time.Millisecond
	switch {
	case !moved:
		return fmt.Sprintf("%s, before packets moved between balancers", b)
	case age < 0:
		return fmt.Sprintf("%s, opened %v after move %d of %d between balancers", b, -age.Round(exact), change+1,
			len(c.moved))
	}
	return fmt.Sprintf("%s, %v after move %d of %d between balancers, when it was %v old", b, after.Round(exact),
		change+1, len(c.moved), age.Round(exact))
}
