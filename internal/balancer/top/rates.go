// SPDX-License-Identifier: Apache-2.0

package top

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// rates are the traffic in a second.
type rates struct {
	// Known: there are two readings between which the counters have not begun again. The others are 0 otherwise.
	Known       bool    `json:"known"`
	Connections float64 `json:"connections_per_second"`
	Packets     float64 `json:"packets_per_second"`
	Bits        float64 `json:"bits_per_second"`
	// ReturnedBits went back to clients through the balancer.
	ReturnedBits float64 `json:"returned_bits_per_second"`
}

// add adds up rates; the sum is known where one of them is.
func (r rates) add(other rates) rates {
	return rates{r.Known || other.Known, r.Connections + other.Connections, r.Packets + other.Packets,
		r.Bits + other.Bits, r.ReturnedBits + other.ReturnedBits}
}

// counters are read at one moment.
type counters struct{ connections, packets, bytes, returned uint64 }

// ratesUntil returns the rates between two readings; unknown where a counter has begun again.
func (c counters) ratesUntil(later counters, elapsed time.Duration) rates {
	seconds := elapsed.Seconds()
	if seconds <= 0 || later.connections < c.connections || later.packets < c.packets || later.bytes < c.bytes ||
		later.returned < c.returned {
		return rates{}
	}
	rate := func(from, to uint64) float64 { return float64(to-from) / seconds }
	return rates{true, rate(c.connections, later.connections), rate(c.packets, later.packets),
		8 * rate(c.bytes, later.bytes), 8 * rate(c.returned, later.returned)}
}

const (
	// rateWindow is how far back a rate looks: longer than an interval, so that small figures do not flicker.
	rateWindow = 2 * time.Second
	// trendPoints is how many values a sparkline has at most.
	trendPoints = 40
)

// objectCounters is a status's counters by their objects: see serviceID and the functions beside it.
type objectCounters map[string]counters

// serviceID and those below it return the keys of counted objects. The separator is no character of a name.
func serviceID(service string) string          { return "s\x00" + service }
func backendID(service, backend string) string { return "b\x00" + service + "\x00" + backend }
func outcomeID(name string) string             { return "o\x00" + name }
func lostID(nic string) string                 { return "x\x00" + nic }

// readCounters reads all counters that have rates.
func readCounters(s *ops.Status) objectCounters {
	all := objectCounters{}
	for i := range s.Services {
		service := &s.Services[i]
		if p := service.Proxy; p != nil {
			all[serviceID(service.Name)] = counters{connections: p.Connections, bytes: p.BytesIn, returned: p.BytesOut}
		}
		for j := range service.Backends {
			b := &service.Backends[j]
			all[backendID(service.Name, b.Name)] = counters{b.Connections, b.Packets, b.Bytes, b.ReturnedBytes}
		}
	}
	for _, o := range s.Outcomes {
		all[outcomeID(o.Name)] = counters{packets: o.Packets}
	}
	for _, nic := range s.Interfaces {
		all[lostID(nic.Name)] = counters{packets: nic.XDPLost}
	}
	return all
}

// sample is the counters at a moment.
type sample struct {
	at      time.Time
	counted objectCounters
}

// history is the latest samples, and the past of the rates.
type history struct {
	// samples are the latest within rateWindow, and the one before them; the latest last.
	samples []sample
	trends  map[string]*trend
	// readings counts the samples so far.
	readings uint64
}

// trend is the past of a rate.
type trend struct {
	// values has the latest trendPoints values at most, the latest last.
	values []float64
	// reading is the one that it was added at last.
	reading uint64
}

// add takes a status that was read at a moment.
func (h *history) add(s *ops.Status, at time.Time) {
	h.samples = append(h.samples, sample{at, readCounters(s)})
	for len(h.samples) > 2 && at.Sub(h.samples[1].at) >= rateWindow {
		h.samples = slices.Delete(h.samples, 0, 1)
	}
	h.readings++
}

// rate returns the present rates of a counted object.
func (h *history) rate(id string) rates {
	if len(h.samples) == 0 {
		return rates{}
	}
	latest := h.samples[len(h.samples)-1]
	now, there := latest.counted[id]
	if !there {
		return rates{}
	}
	// A counter that has begun again within the window has the rate since then.
	for _, s := range h.samples[:len(h.samples)-1] {
		before, there := s.counted[id]
		if !there {
			continue
		}
		if r := before.ratesUntil(now, latest.at.Sub(s.at)); r.Known {
			return r
		}
	}
	return rates{}
}

// trend adds the present rate of something to its past, and returns that, the latest last.
func (h *history) trend(id string, value float64) []float64 {
	if h.trends == nil {
		h.trends = map[string]*trend{}
	}
	line := h.trends[id]
	if line == nil {
		line = &trend{}
		h.trends[id] = line
	}
	if line.reading = h.readings; len(line.values) == trendPoints {
		copy(line.values, line.values[1:])
		line.values[trendPoints-1] = value
	} else {
		line.values = append(line.values, value)
	}
	return line.values
}

// prune forgets the past of objects that are not there any more.
func (h *history) prune() {
	for id, line := range h.trends {
		if line.reading != h.readings {
			delete(h.trends, id)
		}
	}
}
