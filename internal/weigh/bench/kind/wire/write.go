// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// Bounds for judging a step.
const (
	// wireLoss is the share of failures from which on some part was the bottleneck.
	wireLoss = 0.001
	// wireAtCeiling is a share of the tester's ceiling. A rate above it was limited by the tester, and not by the
	// balancer.
	wireAtCeiling = 0.95
)

// write adds the step to a result. Failed connections are a figure, and do not make the result invalid; a step without
// any connection does.
func (r wireResult) write(got *results.Trial) {
	got.Valid = true
	got.Metrics = r.step.Metrics()
	got.Metrics[r.step.Kind.Metric()] = r.rate(r.done())
	r.writeServers(got)
	r.writeParts(got)
	got.Notes = append(slices.Clone(got.Notes), r.running.Notes()...)
	if r.step.Interrupted {
		got.Valid = false
		got.Notes = append([]string{"the step was ended early"}, got.Notes...)
	}
	if done := r.done(); done == 0 {
		got.Valid = false
		got.Notes = append([]string{fmt.Sprintf("of %d %s that were begun, none came to anything", r.step.Begun,
			r.noun())}, got.Notes...)
	}
	if lost := describeDrops(r.from.drops, r.to.drops); lost != "" {
		got.Notes = append(got.Notes, "frames that found a queue full: "+lost)
	}
}

// done returns the number that the main metric counts.
func (r wireResult) done() uint64 {
	switch r.step.Kind {
	case wire.UDP, wire.SYNFlood:
		return r.arrived()
	case wire.Capacity:
		return min(r.step.Established, r.arrived())
	}
	return r.step.Succeeded()
}

// arrived returns the number of datagrams at the servers.
func (r wireResult) arrived() (sum uint64) {
	for _, n := range r.step.PerServer {
		sum += n
	}
	return sum
}

// noun returns the noun for what the step counts.
func (r wireResult) noun() string {
	return strings.TrimSuffix(strings.ReplaceAll(r.step.Kind.Metric(), "_", " "), " per second")
}

// rate returns n per second of the step.
func (r wireResult) rate(n uint64) float64 {
	if r.step.Duration <= 0 {
		return 0
	}
	return float64(n) / r.step.Duration.Seconds()
}

// writeServers adds the number of connections of each server.
func (r wireResult) writeServers(got *results.Trial) {
	for i, n := range r.step.PerServer {
		server := r.runner.Lab.Servers[i]
		got.Backends = append(got.Backends, results.Backend{Name: server.Name, Address: server.IPv4.String(),
			Connections: n})
	}
}

// writeParts adds the balancer's CPU time, and the part that was the bottleneck.
func (r wireResult) writeParts(got *results.Trial) {
	metrics := got.Metrics
	if done := r.done(); done > 0 && !direct(r.trial) {
		metrics[results.BalancerCPUUsPerConnection] = (r.to.cpu - r.from.cpu).Seconds() * 1e6 / float64(done)
	}
	rate := metrics[r.step.Kind.Metric()]
	ceiling := r.ceiling(rate)
	if ceiling > 0 {
		metrics[results.CeilingPerSecond] = ceiling
	}
	switch {
	case direct(r.trial):
		got.Saturated = results.SaturatedNone
		if r.step.Offered == 0 || !r.step.KeptUp || metrics[results.FailedPercent] > wireLoss*100 ||
			settingsOf(r.trial.By).Search != nil {
			got.Saturated = results.SaturatedClient
		}
	case !r.step.KeptUp, ceiling > 0 && rate >= wireAtCeiling*ceiling:
		got.Saturated = results.SaturatedClient
	case metrics[results.FailedPercent] > wireLoss*100, r.step.Offered == 0, settingsOf(r.trial.By).Search != nil:
		got.Saturated = results.SaturatedBalancer
	default:
		got.Saturated = results.SaturatedNone
	}
	if !r.step.KeptUp {
		got.Notes = append(got.Notes,
			fmt.Sprintf("the tester itself did not keep up: it began %.0f %s a second, at worst %v late",
				metrics[results.BegunPerSecond], r.noun(), r.step.Behind.Round(time.Microsecond)))
	}
}

// ceiling returns the tester's own rate under the load without a balancer, if it was to be measured: the highest rate
// of direct in this run's repeats. A ladder has none.
func (r wireResult) ceiling(rate float64) float64 {
	if settingsOf(r.trial.By).Ladder != nil || settingsOf(r.trial.By).Rate > 0 {
		return 0
	}
	ceilings := bench.RunState[map[string]float64](r.runner, "ceilings of packets")
	if *ceilings == nil {
		*ceilings = ceilingsOf(r.runner.Results.Trials)
	}
	if direct(r.trial) {
		(*ceilings)[r.trial.Load] = max(rate, (*ceilings)[r.trial.Load])
	}
	return (*ceilings)[r.trial.Load]
}

// ceilingsOf returns the highest rates of direct, by load, in the trials of a run that is resumed.
func ceilingsOf(trials []results.Trial) map[string]float64 {
	ceilings := map[string]float64{}
	for _, t := range trials {
		if t.Subject == subjectDirect && t.Valid {
			ceilings[t.Load] = max(ceilings[t.Load], t.Metrics[wireRate(t)])
		}
	}
	return ceilings
}

// describeDrops describes where frames were lost between two readings.
func describeDrops(from, to map[string]uint64) string {
	var words []string
	for _, place := range slices.Sorted(maps.Keys(to)) {
		if to[place] > from[place] {
			words = append(words, fmt.Sprintf("%s %d", place, to[place]-from[place]))
		}
	}
	return strings.Join(words, ", ")
}

// wireTry is a rate that a search tried, with the share of its connections that were lost.
type wireTry struct {
	wire.Step
	lost float64
}

// bestTry returns the index of the highest rate that lost no more than a share of loss with a tester that kept up, and
// that of the lowest rate above it, which failed; -1 means none.
func bestTry(tries []wireTry, loss float64) (best, above int) {
	best, above = -1, -1
	for i, t := range tries {
		if t.lost <= loss && t.KeptUp && !t.Interrupted && (best < 0 || t.Offered > tries[best].Offered) {
			best = i
		}
	}
	for i, t := range tries {
		if best >= 0 && t.Offered > tries[best].Offered && (above < 0 || t.Offered < tries[above].Offered) {
			above = i
		}
	}
	return best, above
}
