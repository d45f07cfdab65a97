// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// subBits is WIRE_SUB of bpf/wire/types.h: 2^6 buckets in each power of two.
const subBits = 6

// bucketBounds returns the lowest value of a bucket, and the lowest value of the next, in ns.
func bucketBounds(i int) (from, to int64) {
	const sub = 1 << subBits
	if i < sub {
		return int64(i), int64(i) + 1
	}
	shift := i/sub - 1
	from = int64(sub+i%sub) << shift
	return from, from + 1<<shift
}

// latency reads a histogram.
func (t *Tester) latency(which bpfWireLatency) (Latency, error) {
	var each []bpfWireHistogram
	if err := t.maps[mapLatencies].Lookup(uint32(which), &each); err != nil {
		return Latency{}, fmt.Errorf("reading latencies: %w", err)
	}
	return summarize(each), nil
}

func summarize(each []bpfWireHistogram) Latency {
	var all Latency
	var total uint64
	lowest := uint64(math.MaxUint64)
	h := hdrhistogram.New(1, int64(time.Hour), 3)
	for _, one := range each {
		if one.Count == 0 {
			continue
		}
		all.Count += one.Count
		total += one.Sum
		lowest = min(lowest, one.Min)
		all.Max = max(all.Max, time.Duration(one.Max))
		for i, n := range one.Bucket {
			if n > 0 {
				from, to := bucketBounds(i)
				_ = h.RecordValues(max(from+(to-from)/2, 1), int64(n)) // an hour is above every bucket
			}
		}
	}
	if all.Count == 0 {
		return all
	}
	all.Min, all.Mean = time.Duration(lowest), time.Duration(total/all.Count)
	// A bucket's middle may lie beyond the least and the greatest value.
	at := func(q float64) time.Duration {
		return min(max(time.Duration(h.ValueAtQuantile(q)), all.Min), all.Max)
	}
	all.P50, all.P90, all.P99 = at(50), at(90), at(99)
	return all
}

// forget clears the histograms.
func (t *Tester) forget() error {
	m := t.maps[mapLatencies]
	for which := range uint32(bpfWireLatencyWIRE_LATENCIES) {
		var each []bpfWireHistogram
		err := m.Lookup(which, &each)
		if err == nil {
			clear(each)
			err = m.Put(which, each)
		}
		if err != nil {
			return fmt.Errorf("emptying latencies: %w", err)
		}
	}
	return nil
}
