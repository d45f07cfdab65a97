// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/results"
	"github.com/jeoul/jeoul/internal/wire"
)

// Of a step.
const (
	// wireLoss is the share of failures from which somebody was the limit.
	wireLoss = 0.001
	// wireAtCeiling is how much of the tester's ceiling a rate is at least that the
	// tester, and not the balancer, has set.
	wireAtCeiling = 0.95
)

// wireResult is a step, and what was read around it.
type wireResult struct {
	*wireTrial
	step     wire.Step
	from, to wireReading
}

// write puts the step into a result. That connections failed is a figure, and does not
// make it invalid; that none was established does.
func (r wireResult) write(got *results.Trial) {
	got.Valid = true
	r.writeCounts(got.Metrics)
	r.writeLatency(got.Metrics)
	r.writeServers(got)
	r.writeParts(got)
	got.Notes = append(slices.Clone(got.Notes), r.running.Notes()...)
	if r.step.Interrupted {
		got.Valid = false
		got.Notes = append([]string{"the step was ended early"}, got.Notes...)
	}
	if done := r.done(); done == 0 {
		got.Valid = false
		got.Notes = append([]string{fmt.Sprintf("of %d %s that were begun, none came to anything", r.step.Begun, r.noun())}, got.Notes...)
	}
	if lost := lostWhere(r.from.drops, r.to.drops); lost != "" {
		got.Notes = append(got.Notes, "frames that found a queue full: "+lost)
	}
}

// done is how many the main metric counts. A connection counts once it is at a server: a
// proxy's kernel has accepted many before that.
func (r wireResult) done() uint64 {
	switch r.step.Kind {
	case wire.Session:
		return r.step.Completed
	case wire.UDP, wire.SYNFlood:
		return r.arrived()
	case wire.Setup, wire.Capacity:
		return min(r.step.Established, r.arrived())
	}
	return r.step.Established
}

// seconds is how long the step went on: as long as it was to, even if the last were begun
// before the end, because no answers came.
func (r wireResult) seconds() float64 {
	return max(r.step.Duration, r.trial.Duration).Seconds()
}

// arrived are datagrams at the servers.
func (r wireResult) arrived() (sum uint64) {
	for _, n := range r.step.PerServer {
		sum += n
	}
	return sum
}

// noun is what the step counts.
func (r wireResult) noun() string {
	noun, _, _ := strings.Cut(wireRates[r.step.Kind].noun, "/")
	return noun
}

func (r wireResult) writeCounts(metrics map[string]float64) {
	s := r.step
	seconds := r.seconds()
	rate := func(n uint64) float64 {
		if seconds <= 0 {
			return 0
		}
		return float64(n) / seconds
	}
	metrics[wireRates[s.Kind].metric] = rate(r.done())
	metrics[results.BegunPerSecond] = rate(s.Begun)
	metrics[results.OfferedPerSecond] = cmp.Or(s.Offered, rate(s.Begun))
	metrics[results.DurationSeconds] = seconds
	metrics[results.TesterKeptUp] = float64(yesOne(s.KeptUp))
	metrics[results.TesterBehindMs] = milliseconds(s.Behind)
	for name, n := range map[string]uint64{
		results.WireBegun: s.Begun, results.WireAccepted: r.arrived(), results.WireEstablished: s.Established, results.WireCompleted: s.Completed,
		results.Failed: s.Failed.Total(), results.FailedNoAnswer: s.Failed.NoAnswer, results.FailedReset: s.Failed.Reset,
		results.FailedWrongBackend: s.Failed.WrongBackend, results.FailedChecksum: s.Failed.Checksum, results.FailedUnsent: s.Failed.Unsent,
		results.Retransmitted: s.Retransmitted,
		results.StrangeLate:   s.Strange.Late, results.StrangeDuplicate: s.Strange.Duplicate, results.StrangeStranger: s.Strange.Stranger,
		results.StrangeChecksum: s.Strange.Checksum, results.StrangeMalformed: s.Strange.Malformed,
		results.StrangeOtherFlows: s.Strange.WrongBackend, results.StrangeUnknown: s.Strange.Unacknowledgeable,
		results.WireSent: s.Clients.Sent + s.Servers.Sent, results.WireReceived: s.Clients.Received + s.Servers.Received,
	} {
		metrics[name] = float64(n)
	}
	metrics[results.LostToServers], metrics[results.LostToClients] = float64(s.LostToServers), float64(s.LostToClients)
	if s.Begun > 0 {
		metrics[results.FailedPercent] = float64(s.Failed.Total()) / float64(s.Begun) * 100
	}
	if r.trial.By.Wire.SYNFlood != nil {
		metrics[results.FloodSentPerSecond], metrics[results.FloodArrivedPerSecond] = rate(s.FloodSent), rate(s.FloodArrived)
	}
}

func yesOne(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r wireResult) writeLatency(metrics map[string]float64) {
	for _, of := range []struct {
		latency       wire.Latency
		p50, p99, max string
	}{
		{r.step.Setup, results.SetupLatencyMsP50, results.SetupLatencyMsP99, results.SetupLatencyMsMax},
		{r.step.Response, results.ResponseLatencyMsP50, results.ResponseLatencyMsP99, results.ResponseLatencyMsMax},
	} {
		if of.latency.Count > 0 {
			metrics[of.p50], metrics[of.p99], metrics[of.max] =
				milliseconds(of.latency.P50), milliseconds(of.latency.P99), milliseconds(of.latency.Max)
		}
	}
}

// writeServers writes what each server got, and how evenly.
func (r wireResult) writeServers(got *results.Trial) {
	sum := float64(r.arrived())
	most := 0.0
	for i, n := range r.step.PerServer {
		server := r.runner.lab.Servers[i]
		got.Backends = append(got.Backends, results.Backend{Name: server.Name, Address: server.IPv4.String(), Connections: n})
		if share := sum / float64(len(r.step.PerServer)); share > 0 {
			most = max(most, math.Abs(float64(n)/share-1)*100)
		}
	}
	if sum > 0 {
		got.Metrics[results.UnevennessPercent] = most
	}
}

// writeParts writes what the balancer cost, and who was the limit.
func (r wireResult) writeParts(got *results.Trial) {
	metrics := got.Metrics
	if done := r.done(); done > 0 && !r.trial.direct() {
		metrics[results.BalancerCPUUsPerConnection] = (r.to.cpu - r.from.cpu).Seconds() * 1e6 / float64(done)
	}
	rate := metrics[wireRates[r.step.Kind].metric]
	ceiling := r.ceiling(rate)
	if ceiling > 0 {
		metrics[results.CeilingPerSecond] = ceiling
	}
	switch {
	case r.trial.direct():
		got.Saturated = results.SaturatedNone
		if r.step.Offered == 0 || !r.step.KeptUp || metrics[results.FailedPercent] > wireLoss*100 || r.trial.By.Wire.Search != nil {
			got.Saturated = results.SaturatedClient
		}
	case !r.step.KeptUp, ceiling > 0 && rate >= wireAtCeiling*ceiling:
		got.Saturated = results.SaturatedClient
	case metrics[results.FailedPercent] > wireLoss*100, r.step.Offered == 0, r.trial.By.Wire.Search != nil:
		got.Saturated = results.SaturatedBalancer
	default:
		got.Saturated = results.SaturatedNone
	}
	if !r.step.KeptUp {
		got.Notes = append(got.Notes, fmt.Sprintf("the tester itself did not keep up: it began %.0f %s a second, at worst %v late",
			metrics[results.BegunPerSecond], r.noun(), r.step.Behind.Round(time.Microsecond)))
	}
}

// ceiling is what the tester reaches under the load without a balancer, if that was to be
// found: of direct the most of this run's repeats. A ladder has none.
func (r wireResult) ceiling(rate float64) float64 {
	if r.trial.By.Wire.Ladder != nil || r.trial.By.Wire.Rate > 0 {
		return 0
	}
	if r.runner.ceilings == nil {
		r.runner.ceilings = map[string]float64{}
	}
	if r.trial.direct() {
		r.runner.ceilings[r.trial.Load] = max(rate, r.runner.ceilings[r.trial.Load])
	}
	return r.runner.ceilings[r.trial.Load]
}

// lostWhere says where frames were lost between two readings.
func lostWhere(from, to map[string]uint64) string {
	var words []string
	for _, place := range slices.Sorted(maps.Keys(to)) {
		if to[place] > from[place] {
			words = append(words, fmt.Sprintf("%s %d", place, to[place]-from[place]))
		}
	}
	return strings.Join(words, ", ")
}

// found writes the result of a search: the highest rate that lost no more than it may.
func (w *wireTrial) found(steps []wire.Step) error {
	search := w.trial.By.Wire.Search
	var tried []string
	best := -1
	for i, s := range steps {
		lost := 0.0
		if s.Begun > 0 {
			lost = 1 - float64(wireResult{wireTrial: w, step: s}.done())/float64(s.Begun)
		}
		tried = append(tried, fmt.Sprintf("%.0f/s lost %.3g %%", s.Offered, lost*100))
		if lost <= search.Loss && s.KeptUp && !s.Interrupted && (best < 0 || s.Offered > steps[best].Offered) {
			best = i
		}
	}
	if best < 0 {
		return fmt.Errorf("no rate from %d a second on lost at most %g: %s", search.From, search.Loss, strings.Join(tried, ", "))
	}
	if err := w.step(steps[best]); err != nil {
		return err
	}
	got := &w.got[len(w.got)-1]
	// The readings are around all rates that were tried.
	delete(got.Metrics, results.BalancerCPUUsPerConnection)
	got.Notes = append(got.Notes, "rates that were tried: "+strings.Join(tried, ", "))
	return nil
}
