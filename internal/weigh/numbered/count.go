// SPDX-License-Identifier: Apache-2.0

package numbered

import (
	"context"
	"encoding/binary"
	"fmt"
	"sort"
	"time"

	"github.com/cilium/ebpf"
)

const wordBits = 64

// Place is the place where a number was lost.
type Place int

// The places.
const (
	// Unknown means that no device at the balancer was watched.
	Unknown Place = iota
	// Before means that the datagram did not go to the balancer.
	Before
	// Balancer means that the datagram went to the balancer, and the balancer did not return it.
	Balancer
	// Behind means that the balancer returned the datagram, and no server received it.
	Behind
)

// Gap is a run of numbers that were not received and were lost in one place.
type Gap struct {
	Place Place
	// First is the first number of the gap, and Length the number of numbers in it.
	First, Length uint64
	// From and To are the times when the first and the last of them were sent, to a millisecond.
	From, To time.Time
}

// Sent returns the number of datagrams that were sent; their numbers are the numbers below it.
func (s *Stream) Sent() uint64 { return s.sent.Load() }

// Twice returns the number of datagrams whose number had been received before.
func (s *Stream) Twice() (uint64, error) {
	var n uint64
	if err := s.objects.Duplicates.Get(&n); err != nil {
		return 0, fmt.Errorf("reading which numbered datagrams came twice: %w", err)
	}
	return n, nil
}

// settled is the time without a datagram after which missing ones count as lost, and pollInterval the interval of
// checks.
const (
	settled      = time.Second
	pollInterval = 20 * time.Millisecond
)

// Missing returns the runs of numbers in [from, to) that were not received, in order. It waits as long as late
// datagrams come.
func (s *Stream) Missing(ctx context.Context, from, to uint64) ([]Gap, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for last, since := uint64(0), time.Now(); ; {
		gaps, err := s.gaps(from, to)
		if err != nil {
			return nil, err
		}
		switch now := lost(gaps); {
		case now == 0:
			return nil, nil
		case now != last:
			last, since = now, time.Now()
		case time.Since(since) >= settled:
			return gaps, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

func lost(gaps []Gap) (n uint64) {
	for _, g := range gaps {
		n += g.Length
	}
	return n
}

// gaps returns the runs of numbers that have not been received until now.
func (s *Stream) gaps(from, to uint64) ([]Gap, error) {
	came, err := s.bits(from, to)
	if err != nil {
		return nil, err
	}
	var uncut uint64
	if err := s.objects.Unsegmented.Get(&uncut); err != nil {
		return nil, fmt.Errorf("reading whether numbered datagrams came uncut: %w", err)
	}
	if uncut > 0 {
		return nil, fmt.Errorf("%w: %d packets of several datagrams each came, so their numbers cannot be told; "+
			"switch tx-udp-segmentation off on the sender's device", ErrUncut, uncut)
	}
	gaps, err := came.runs(from, to)
	if err != nil {
		return nil, err
	}
	for i := range gaps {
		gaps[i].From, gaps[i].To = s.sentAt(gaps[i].First), s.sentAt(gaps[i].First+gaps[i].Length-1)
	}
	return gaps, nil
}

// bits holds words of the numbers that were counted in each place; the first bit is number base.
type bits struct {
	base uint64
	came []uint64
	// entered and returned are nil where no device at the balancer was watched.
	entered, returned []uint64
}

// bits returns the words that contain the bits of the numbers in [from, to).
func (s *Stream) bits(from, to uint64) (b bits, err error) {
	first, end := from/wordBits, (to+wordBits-1)/wordBits
	b.base = first * wordBits
	// The order is against the direction of the packets: a number that has been received by now went to the balancer
	// before.
	if b.came, err = words(s.came, first, end); err != nil || !s.watched {
		return b, err
	}
	if b.returned, err = words(s.returned, first, end); err != nil {
		return b, err
	}
	b.entered, err = words(s.entered, first, end)
	return b, err
}

// words returns a place's words from index from to before index to.
func words(of *ebpf.Memory, from, to uint64) ([]uint64, error) {
	data := make([]byte, (to-from)*8)
	if len(data) == 0 {
		return nil, nil
	}
	if _, err := of.ReadAt(data, int64(from*8)); err != nil {
		return nil, fmt.Errorf("reading which numbered datagrams came: %w", err)
	}
	words := make([]uint64, to-from)
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(data[i*8:])
	}
	return words, nil
}

// runs returns the runs of bits that are not set, in [from, to).
func (b bits) runs(from, to uint64) (gaps []Gap, err error) {
	for number := from; number < to; number++ {
		word, bit := (number-b.base)/wordBits, uint64(1)<<(number%wordBits)
		if b.entered != nil && b.came[word]&^(b.entered[word]&b.returned[word]) != 0 {
			return nil, fmt.Errorf("%w: among %d to %d", ErrUnseen, b.base+word*wordBits, b.base+(word+1)*wordBits-1)
		}
		if b.came[word] == ^uint64(0) {
			number |= wordBits - 1
			continue
		}
		if b.came[word]&bit != 0 {
			continue
		}
		place := b.place(word, bit)
		if last := len(gaps) - 1; last >= 0 && gaps[last].Place == place && gaps[last].First+
			gaps[last].Length == number {
			gaps[last].Length++
		} else {
			gaps = append(gaps, Gap{Place: place, First: number, Length: 1})
		}
	}
	return gaps, nil
}

// place returns the place where a missing number was lost.
func (b bits) place(word, bit uint64) Place {
	switch {
	case b.entered == nil:
		return Unknown
	case b.entered[word]&bit == 0:
		return Before
	case b.returned[word]&bit == 0:
		return Balancer
	}
	return Behind
}

// sentAt returns the time when a number was sent.
func (s *Stream) sentAt(number uint64) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := sort.Search(len(s.moments), func(i int) bool { return s.moments[i].first > number })
	if after == 0 {
		return time.Time{}
	}
	return s.moments[after-1].at
}
