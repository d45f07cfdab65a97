// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"math"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Metric returns the name of the metric for the number that a load completes a second.
func (k Kind) Metric() string {
	switch k {
	case Session, Mix:
		return results.SessionsPerSecond
	case DNS:
		return results.QueriesPerSecond
	case UDP, SYNFlood:
		return results.PacketsPerSecond
	}
	return results.ConnectionsPerSecond
}

// Metrics returns a step's metrics, by their names in the results contract.
func (s Step) Metrics() map[string]float64 {
	rate := func(n uint64) float64 {
		if s.Duration <= 0 {
			return 0
		}
		return float64(n) / s.Duration.Seconds()
	}
	all := map[string]float64{
		s.Kind.Metric():          rate(s.Succeeded()),
		results.BegunPerSecond:   rate(s.Begun),
		results.OfferedPerSecond: cmp.Or(s.Offered, rate(s.Begun)),
		results.DurationSeconds:  s.Duration.Seconds(),
		results.TesterKeptUp:     float64(flag(s.KeptUp)),
		results.TesterBehindMs:   milliseconds(s.Behind),
		results.LostToServers:    float64(s.LostToServers),
		results.LostToClients:    float64(s.LostToClients),
	}
	for name, n := range s.named() {
		all[name] = float64(n)
	}
	if s.Begun > 0 {
		all[results.FailedPercent] = float64(s.Failed.Total()) / float64(s.Begun) * 100
	}
	if s.FloodSent > 0 && s.Kind != SYNFlood {
		all[results.FloodSentPerSecond], all[results.FloodArrivedPerSecond] = rate(s.FloodSent), rate(s.FloodArrived)
	}
	s.Setup.put(all, results.SetupLatencyMsP50, results.SetupLatencyMsP99, results.SetupLatencyMsMax)
	s.Response.put(all, results.ResponseLatencyMsP50, results.ResponseLatencyMsP99, results.ResponseLatencyMsMax)
	if uneven, ok := s.unevenness(); ok {
		all[results.UnevennessPercent] = uneven
	}
	return all
}

// named returns the step's counts by the names of their metrics.
func (s Step) named() map[string]uint64 {
	return map[string]uint64{
		results.WireBegun: s.Begun, results.WireEstablished: s.Established, results.WireCompleted: s.Completed,
		results.WireAccepted: s.accepted(),
		results.Failed:       s.Failed.Total(), results.FailedNoAnswer: s.Failed.NoAnswer,
		results.FailedReset:        s.Failed.Reset,
		results.FailedWrongBackend: s.Failed.WrongBackend, results.FailedChecksum: s.Failed.Checksum,
		results.FailedUnsent:   s.Failed.Unsent,
		results.Retransmitted:  s.Retransmitted,
		results.UnexpectedLate: s.Unexpected.Late, results.UnexpectedDuplicate: s.Unexpected.Duplicate,
		results.UnexpectedUnknownPeer: s.Unexpected.UnknownPeer,
		results.UnexpectedChecksum:    s.Unexpected.Checksum, results.UnexpectedMalformed: s.Unexpected.Malformed,
		results.UnexpectedOtherFlows:        s.Unexpected.WrongBackend,
		results.UnexpectedUnacknowledgeable: s.Unexpected.Unacknowledgeable,
		results.WireSent:                    s.Clients.Sent + s.Servers.Sent, results.WireReceived: s.Clients.Received +
			s.Servers.Received,
	}
}

// accepted returns the sum of the connections of all server ports.
func (s Step) accepted() (sum uint64) {
	for _, n := range s.PerServer {
		sum += n
	}
	return sum
}

// unevenness returns the greatest difference of a server port from an equal share, in per cent of that share; false
// where there is nothing to share.
func (s Step) unevenness() (percent float64, ok bool) {
	share := float64(s.accepted()) / float64(max(len(s.PerServer), 1))
	if share == 0 {
		return 0, false
	}
	for _, n := range s.PerServer {
		percent = max(percent, math.Abs(float64(n)/share-1)*100)
	}
	return percent, true
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// put stores a latency under three names, if there was any.
func (l Latency) put(all map[string]float64, p50, p99, most string) {
	if l.Count > 0 {
		all[p50], all[p99], all[most] = milliseconds(l.P50), milliseconds(l.P99), milliseconds(l.Max)
	}
}
