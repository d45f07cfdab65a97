// SPDX-License-Identifier: Apache-2.0

package numbered

import (
	"context"
	"encoding/binary"
	"fmt"
	"sort"
	"time"
)

const wordBits = 64

// Gap is a run of numbers that did not come.
type Gap struct {
	// First is the first of them, and Length how many they are.
	First, Length uint64
	// From and To are when the first and the last of them were sent, to a millisecond.
	From, To time.Time
}

// Sent returns how many datagrams were sent; their numbers are those below.
func (s *Stream) Sent() uint64 { return s.sent.Load() }

// Twice returns how many datagrams came whose number had come before.
func (s *Stream) Twice() (uint64, error) {
	var n uint64
	if err := s.objects.Twice.Get(&n); err != nil {
		return 0, fmt.Errorf("reading which numbered datagrams came twice: %w", err)
	}
	return n, nil
}

// settled is how long nothing more may come until what is missing counts as lost, and
// lookEvery how often it is looked.
const (
	settled   = time.Second
	lookEvery = 20 * time.Millisecond
)

// Missing returns the runs of numbers from one to before another that did not come, in their
// order. As long as some come late, it waits for them.
func (s *Stream) Missing(ctx context.Context, from, to uint64) ([]Gap, error) {
	ticker := time.NewTicker(lookEvery)
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

// gaps are the numbers that have not come until now.
func (s *Stream) gaps(from, to uint64) ([]Gap, error) {
	words, err := s.words(from/wordBits, (to+wordBits-1)/wordBits)
	if err != nil {
		return nil, err
	}
	var uncut uint64
	if err := s.objects.Uncut.Get(&uncut); err != nil {
		return nil, fmt.Errorf("reading whether numbered datagrams came uncut: %w", err)
	}
	if uncut > 0 {
		return nil, fmt.Errorf("%w: %d packets of several datagrams each came, so their numbers cannot be told; "+
			"switch tx-udp-segmentation off on the sender's device", ErrUncut, uncut)
	}
	gaps := runs(words, from/wordBits*wordBits, from, to)
	for i := range gaps {
		gaps[i].From, gaps[i].To = s.sentAt(gaps[i].First), s.sentAt(gaps[i].First+gaps[i].Length-1)
	}
	return gaps, nil
}

// words are those of the receiver's bits from one to before another.
func (s *Stream) words(from, to uint64) ([]uint64, error) {
	data := make([]byte, (to-from)*8)
	if len(data) == 0 {
		return nil, nil
	}
	if _, err := s.came.ReadAt(data, int64(from*8)); err != nil {
		return nil, fmt.Errorf("reading which numbered datagrams came: %w", err)
	}
	words := make([]uint64, to-from)
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(data[i*8:])
	}
	return words, nil
}

// runs are the runs of bits that are not set, from one to before another, in words whose first
// bit is number base.
func runs(words []uint64, base, from, to uint64) (gaps []Gap) {
	for number := from; number < to; number++ {
		word := words[(number-base)/wordBits]
		if word == ^uint64(0) {
			number |= wordBits - 1
			continue
		}
		if word>>(number%wordBits)&1 != 0 {
			continue
		}
		if last := len(gaps) - 1; last >= 0 && gaps[last].First+gaps[last].Length == number {
			gaps[last].Length++
		} else {
			gaps = append(gaps, Gap{First: number, Length: 1})
		}
	}
	return gaps
}

// sentAt is when a number was sent.
func (s *Stream) sentAt(number uint64) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := sort.Search(len(s.moments), func(i int) bool { return s.moments[i].first > number })
	if after == 0 {
		return time.Time{}
	}
	return s.moments[after-1].at
}
