// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/flood"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// floodIdle is the minimum idle time of the connections' core while nothing else runs there, in cores.
const floodIdle = 0.05

// write adds the measurements to a result. Lost connections are a result, and do not make it invalid.
func (f *floodTrial) write(got *results.Trial, report *load.SteadyReport) {
	got.Valid = true
	f.writeClient(got.Metrics, report)
	f.writeFlood(got.Metrics)
	f.writeRemembered(got)
	got.Notes = append(got.Notes, f.running.Notes()...)
	if idle := got.Metrics[results.QuietCoreIdle]; idle < floodIdle {
		got.Notes = append(got.Notes, fmt.Sprintf(
			"the core that has the connections idled %.0f %% of the quiet phase: something else was on it, and the ratio of the phases says little", idle*100))
	}
	for _, phase := range report.Phases {
		name := phase.Name
		if name == "" {
			name = "between the phases"
		}
		if len(phase.Why) > 0 {
			got.Notes = append(got.Notes, name+": "+strings.Join(phase.Why, "; "))
		}
	}
}

// writeClient writes the client's measurements.
func (f *floodTrial) writeClient(metrics map[string]float64, report *load.SteadyReport) {
	quiet, flooded := report.Phase(phaseQuiet), report.Phase(phaseFlood)
	set := func(name string, value uint64) { metrics[name] = float64(value) }
	set(results.QuietRequests, quiet.Answered)
	set(results.FloodRequests, flooded.Answered)
	set(results.Established, uint64(f.trial.Concurrency))
	set(results.QuietNewOpened, quiet.Opened)
	set(results.QuietNewFailed, quiet.NotOpened)
	set(results.FloodNewOpened, flooded.Opened)
	set(results.FloodNewFailed, flooded.NotOpened)
	var all load.PhaseReport
	for _, phase := range report.Phases {
		all.Reset += phase.Reset
		all.Closed += phase.Closed
		all.Silent += phase.Silent
		all.Wrong += phase.Wrong
		all.Unanswered += phase.Unanswered
	}
	set(results.EstablishedLost, all.Lost())
	set(results.EstablishedReset, all.Reset)
	set(results.EstablishedClosed, all.Closed)
	set(results.EstablishedSilent, all.Silent)
	set(results.EstablishedWrong, all.Wrong)
	set(results.FloodUnanswered, all.Unanswered)
	writeLatency(metrics, quiet.Latency, results.QuietLatencyMsP50, results.QuietLatencyMsP99,
		results.QuietLatencyMsMax)
	writeLatency(metrics, flooded.Latency, results.FloodLatencyMsP50, results.FloodLatencyMsP99,
		results.FloodLatencyMsMax)
	writeLatency(metrics, quiet.NewLatency, "", results.QuietNewLatencyMsP99, "")
	writeLatency(metrics, flooded.NewLatency, "", results.FloodNewLatencyMsP99, "")
	for ratio, of := range map[string][2]string{
		results.FloodRatioP50: {results.FloodLatencyMsP50, results.QuietLatencyMsP50},
		results.FloodRatioP99: {results.FloodLatencyMsP99, results.QuietLatencyMsP99},
	} {
		if below := metrics[of[1]]; below > 0 && flooded.Latency.Count() > 0 {
			metrics[ratio] = metrics[of[0]] / below
		}
	}
}

// writeLatency adds those values of a distribution whose names are not empty.
func writeLatency(metrics map[string]float64, l *load.Latency, p50, p99, most string) {
	if l.Count() == 0 {
		return
	}
	for name, value := range map[string]float64{p50: l.Ms(50), p99: l.Ms(99), most: l.MaxMs()} {
		if name != "" {
			metrics[name] = value
		}
	}
}

// writeFlood adds the fate of the flood, and its cost for the balancer.
func (f *floodTrial) writeFlood(metrics map[string]float64) {
	cores := func(from, to floodReading) float64 {
		return (to.cpu - from.cpu).Seconds() / to.at.Sub(from.at).Seconds()
	}
	metrics[results.QuietBalancerCPUCores] = cores(f.quiet[0], f.quiet[1])
	metrics[results.FloodBalancerCPUCores] = cores(f.flooded[0], f.flooded[1])
	idle := func(from, to floodReading) float64 { return (to.idle - from.idle) / to.at.Sub(from.at).Seconds() }
	metrics[results.QuietCoreIdle] = idle(f.quiet[0], f.quiet[1])
	metrics[results.FloodCoreIdle] = idle(f.flooded[0], f.flooded[1])
	from, to := f.flooded[0], f.flooded[1]
	rate := func(count func(flood.Counts) uint64) float64 {
		return float64(count(to.counts)-count(from.counts)) / to.at.Sub(from.at).Seconds()
	}
	metrics[results.FloodOfferedPerSecond] = rate(func(c flood.Counts) uint64 { return c.Offered })
	metrics[results.FloodAnsweredPerSecond] = rate(func(c flood.Counts) uint64 { return c.Returned.SYNACKs })
	handled := rate(func(c flood.Counts) uint64 { return c.Forwarded + c.ForwardedACKs })
	if handled == 0 {
		handled = rate(func(c flood.Counts) uint64 { return c.Answered.SYNACKs + c.Answered.Resets })
	}
	metrics[results.FloodHandledPerSecond] = handled
}

// writeRemembered adds the amount of state that the subject stored.
func (f *floodTrial) writeRemembered(got *results.Trial) {
	before, during, after := f.remembered[0], f.remembered[1], f.remembered[2]
	if before.What == "" {
		return
	}
	got.Metrics[results.RememberedBefore] = float64(before.Flows)
	got.Metrics[results.RememberedDuring] = float64(during.Flows)
	got.Metrics[results.RememberedAfter] = float64(after.Flows)
	if during.Limit > 0 {
		got.Metrics[results.RememberedLimit] = float64(during.Limit)
	}
	if during.Bytes > 0 {
		got.Metrics[results.RememberedBytes] = float64(during.Bytes)
	}
	got.Notes = append(got.Notes, fmt.Sprintf("what it remembered: %s", before.What))
}
