// SPDX-License-Identifier: Apache-2.0

package numbered

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var target = netip.MustParseAddrPort("198.18.0.2:7000")

func TestImpossibleStreams(t *testing.T) {
	for name, o := range map[string]Options{
		"no target": {Rate: 1, Flows: 1},
		"no rate":   {Target: target, Flows: 1},
		"too fast":  {Target: target, Rate: MaxRate + 1, Flows: 1},
		"no flow":   {Target: target, Rate: 1},
	} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: got %v, want ErrOptions", name, err)
		}
	}
}

func TestRuns(t *testing.T) {
	all := ^uint64(0)
	came := bits{base: 128, came: []uint64{all, all &^ (1<<3 | 1<<4 | 1<<63), all &^ 1, 0}}
	watched := came
	watched.entered = []uint64{all, all &^ (1 << 3), all, all}
	watched.returned = []uint64{all, all &^ (1<<3 | 1<<4), all, all}
	for _, tc := range []struct {
		bits     bits
		from, to uint64
		want     []Gap
	}{
		{came, 128, 192, nil},
		{came, 192, 260, []Gap{{First: 195, Length: 2}, {First: 255, Length: 2}}},
		{came, 196, 256, []Gap{{First: 196, Length: 1}, {First: 255, Length: 1}}},
		{came, 318, 325, []Gap{{First: 320, Length: 5}}},
		{came, 320, 320, nil},
		{watched, 128, 260, []Gap{{Place: Before, First: 195, Length: 1}, {Place: Balancer, First: 196, Length: 1},
			{Place: Behind, First: 255, Length: 2}}},
	} {
		got, err := tc.bits.runs(tc.from, tc.to)
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("from %d to %d: %v (-want +got):\n%s", tc.from, tc.to, err, diff)
		}
	}
}

// TestUnseen: a number that was received but had not passed the balancer shows that the devices there miss some. Then
// they do not show where others were lost.
func TestUnseen(t *testing.T) {
	for name, b := range map[string]bits{
		"entering":  {came: []uint64{1 << 5}, entered: []uint64{0}, returned: []uint64{1 << 5}},
		"returning": {came: []uint64{1 << 5}, entered: []uint64{1 << 5}, returned: []uint64{0}},
	} {
		if _, err := b.runs(0, 10); !errors.Is(err, ErrUnseen) {
			t.Errorf("%s unseen: got %v, want ErrUnseen", name, err)
		}
	}
}

// TestPace: over a time, the rate determines the number of due datagrams, except for the time in which the sender did
// not run.
func TestPace(t *testing.T) {
	began := time.Unix(0, 0)
	p := pace{rate: 100_000, last: began}
	sent := 0
	for i := range 1000 {
		sent += p.due(began.Add(time.Duration(i+1)*time.Millisecond)) * burst
	}
	if sent > 100_000 || sent <= 100_000-burst {
		t.Errorf("%d datagrams in a second, want 100,000 but for a part of a burst", sent)
	}
	if late := p.due(began.Add(time.Minute)) * burst; late > 5000+burst {
		t.Errorf("%d datagrams at once after 59 s, want those of 50 ms", late)
	}
}

// rig is a sender and a receiver with a link between them.
type rig struct {
	sender, receiver *namespace.Namespace
	index            int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{sender: testenv.Namespace(t), receiver: testenv.Namespace(t)}
	testenv.Veth(t, testenv.End{Namespace: r.sender, Name: "out"}, testenv.End{Namespace: r.receiver, Name: "in"})
	for _, end := range []struct {
		ns            *namespace.Namespace
		name, address string
	}{{r.sender, "out", "198.18.0.1/24"}, {r.receiver, "in", "198.18.0.2/24"}} {
		testenv.In(t, end.ns, func() error {
			l, err := netlink.LinkByName(end.name)
			if err != nil {
				return err
			}
			r.index = l.Attrs().Index
			address, err := netlink.ParseAddr(end.address)
			if err != nil {
				return err
			}
			return netlink.AddrAdd(l, address)
		})
	}
	return r
}

// cuts sets whether the sender's device leaves the cutting of datagrams to its peer.
func (r *rig) cuts(t *testing.T, cuts bool) {
	t.Helper()
	testenv.In(t, r.sender, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change("out", map[string]bool{"tx-udp-segmentation": !cuts})
	})
}

// TestUncut: packets of several datagrams are rejected instead of being counted as one.
func TestUncut(t *testing.T) {
	r := newRig(t)
	r.cuts(t, false)
	s, stop := start(t, r)
	testenv.Eventually(t, testenv.WaitLimit, "datagrams are sent", func() bool { return s.Sent() > 0 })
	stop()
	if _, err := s.Missing(t.Context(), 0, s.Sent()); !errors.Is(err, ErrUncut) {
		t.Errorf("got %v, want ErrUncut", err)
	}
}

// start starts a stream, which stop ends.
func start(t *testing.T, r *rig) (s *Stream, stop func()) {
	t.Helper()
	s, err := New(Options{Target: target, Rate: 20_000, Flows: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	testenv.In(t, r.receiver, func() error { return s.Receive(r.index) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.sender.Do(func() error { return s.Send(ctx) }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// TestStreamIsCountedByNumber sends a stream over a link, first with the link up, and then with a time in which it is
// down: nothing is missing, and then the datagrams of that time are missing.
func TestStreamIsCountedByNumber(t *testing.T) {
	r := newRig(t)
	r.cuts(t, true)
	s, stop := start(t, r)
	sends := func(n uint64) uint64 {
		t.Helper()
		from := s.Sent()
		testenv.Eventually(t, testenv.WaitLimit, "the stream goes on", func() bool { return s.Sent() >= from+n })
		return s.Sent()
	}
	whole := sends(2000)
	if gaps, err := s.Missing(t.Context(), 0, whole); err != nil || gaps != nil {
		t.Errorf("of %d datagrams these are missing: %v, %v", whole, gaps, err)
	}
	testenv.In(t, r.receiver, func() error { return linkIs(r.index, netlink.LinkSetDown) })
	sends(2000)
	testenv.In(t, r.receiver, func() error { return linkIs(r.index, netlink.LinkSetUp) })
	sends(2000)
	stop()
	gaps, err := s.Missing(t.Context(), whole, s.Sent())
	if err != nil || lost(gaps) == 0 || lost(gaps) >= s.Sent()-whole {
		t.Fatalf("of %d datagrams these are missing: %v, %v; want those of the time in which the link was down",
			s.Sent()-whole, gaps, err)
	}
	if g := gaps[0]; g.From.IsZero() || g.To.Before(g.From) {
		t.Errorf("the first gap was sent from %v to %v", g.From, g.To)
	}
	if twice, err := s.Twice(); twice != 0 || err != nil {
		t.Errorf("%d came twice, %v", twice, err)
	}
}

// linkIs changes a link.
func linkIs(index int, do func(netlink.Link) error) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	return do(l)
}
