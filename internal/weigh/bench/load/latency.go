// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is a distribution of latencies as clients saw them.
//
// Every request is recorded in a histogram of microseconds with three significant digits (HdrHistogram). So a merge of
// two histograms weights each by its requests, and a percentile of the result is off by at most 0.1 % of the value,
// besides the generator's own rounding (see quantiles). Minimum, maximum and mean are kept separately and are not
// rounded.
type Latency struct {
	histogram *hdrhistogram.Histogram
	min, max  float64
	sum       float64
}

// The histogram's range: a request that took longer than maxUs is recorded as maxUs.
const (
	maxUs             = 3_600_000_000 // one hour
	significantDigits = 3
)

func newLatency() *Latency {
	return &Latency{histogram: hdrhistogram.New(1, maxUs, significantDigits), min: math.Inf(1)}
}

// NewLatency returns an empty distribution.
func NewLatency() *Latency { return newLatency() }

// Record adds count requests of us microseconds each.
func (l *Latency) Record(us float64, count int64) error { return l.record(us, count) }

// record adds count requests of us microseconds each.
func (l *Latency) record(us float64, count int64) error {
	value := int64(math.Round(us))
	if err := l.histogram.RecordValues(min(max(value, 0), maxUs), count); err != nil {
		return fmt.Errorf("recording a latency of %g µs: %w", us, err)
	}
	l.min, l.max = math.Min(l.min, us), math.Max(l.max, us)
	l.sum += us * float64(count)
	return nil
}

// merge adds the requests of another distribution.
func (l *Latency) merge(other *Latency) {
	l.histogram.Merge(other.histogram)
	l.min, l.max = math.Min(l.min, other.min), math.Max(l.max, other.max)
	l.sum += other.sum
}

// Count returns the number of recorded requests.
func (l *Latency) Count() int64 { return l.histogram.TotalCount() }

// Ms returns the latency at the percentile (0 to 100), in milliseconds; 0 if nothing was recorded.
func (l *Latency) Ms(percentile float64) float64 {
	if l.Count() == 0 {
		return 0
	}
	us := float64(l.histogram.ValueAtPercentile(percentile))
	// The histogram returns the upper end of a bucket, which can be beyond the largest value in it.
	return math.Min(math.Max(us, l.min), l.max) / 1e3
}

// MinMs returns the least latency in milliseconds; 0 if nothing was recorded.
func (l *Latency) MinMs() float64 {
	if l.Count() == 0 {
		return 0
	}
	return l.min / 1e3
}

// MaxMs returns the greatest latency in milliseconds.
func (l *Latency) MaxMs() float64 { return l.max / 1e3 }

// MeanMs returns the mean latency in milliseconds; 0 if nothing was recorded.
func (l *Latency) MeanMs() float64 {
	if l.Count() == 0 {
		return 0
	}
	return l.sum / float64(l.Count()) / 1e3
}

// quantile is a point of a distribution: percent of all requests took at most us microseconds.
type quantile struct {
	percent, us float64
}

var errQuantiles = errors.New("percentiles do not rise")

// maxSamples bounds the work for a distribution of which only quantiles are known.
const maxSamples = 20_000

// fromQuantiles spreads count requests over the distribution that points describe, evenly between two neighbours. So a
// percentile of the result is exact if points has it, and otherwise lies between the two neighbours.
func fromQuantiles(points []quantile, count int64) (*Latency, error) {
	if err := checkQuantiles(points); err != nil {
		return nil, err
	}
	l := newLatency()
	samples := min(count, maxSamples)
	next, done := 0, int64(0)
	for i := range samples {
		percent := (float64(i) + 0.5) / float64(samples) * 100
		for next < len(points)-1 && points[next].percent < percent {
			next++
		}
		upto := int64(float64(count) * float64(i+1) / float64(samples))
		if i == samples-1 {
			upto = count
		}
		if err := l.record(between(points, next, percent), upto-done); err != nil {
			return nil, err
		}
		done = upto
	}
	if count > 0 {
		l.min, l.max = points[0].us, points[len(points)-1].us
	}
	return l, nil
}

// LatencyOf returns a distribution of count requests of which only some percentiles (0 and 100 are the minimum and the
// maximum) and the mean are known, in microseconds.
func LatencyOf(percentiles map[float64]float64, meanUs float64, count int64) (*Latency, error) {
	var points []quantile
	for _, percent := range slices.Sorted(maps.Keys(percentiles)) {
		points = append(points, quantile{percent, percentiles[percent]})
	}
	l, err := fromQuantiles(points, count)
	if err != nil {
		return nil, err
	}
	l.sum = meanUs * float64(count)
	return l, nil
}

// between interpolates at percent, which is at most that of points[next].
func between(points []quantile, next int, percent float64) float64 {
	high := points[next]
	if next == 0 || percent >= high.percent {
		return high.us
	}
	low := points[next-1]
	return low.us + (high.us-low.us)*(percent-low.percent)/(high.percent-low.percent)
}

func checkQuantiles(points []quantile) error {
	if len(points) < 2 {
		return fmt.Errorf("%w: there are only %d", errQuantiles, len(points))
	}
	for i, p := range points {
		switch {
		case math.IsNaN(p.us), math.IsInf(p.us, 0), p.us < 0, p.us > maxUs:
			return fmt.Errorf("%w: %g µs at %g %% is not a latency", errQuantiles, p.us, p.percent)
		case !(p.percent >= 0 && p.percent <= 100):
			return fmt.Errorf("%w: there is no %g %%", errQuantiles, p.percent)
		case i > 0 && (p.percent <= points[i-1].percent || p.us < points[i-1].us):
			return fmt.Errorf("%w: %g µs at %g %% follows %g µs at %g %%", errQuantiles,
				p.us, p.percent, points[i-1].us, points[i-1].percent)
		}
	}
	return nil
}
