// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	peers "github.com/jeoul/jeoul/internal/balancer/handover"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Balancers in one process that hand flows over through their sockets.

// mergeResult is as short in tests.
type mergeResult = lb.MergeResult

// otherPeers are the others, which do not change.
type otherPeers []lb.Peer

func (n otherPeers) Peers() []lb.Peer         { return n }
func (n otherPeers) Changed() <-chan struct{} { return nil }

// exchangeAmong has data planes hand over to each other until the test ends.
func exchangeAmong(tb testing.TB, all ...*Datapath) (exchanges []*peers.Exchange) {
	tb.Helper()
	var listeners []net.Listener
	var others []lb.Peer
	for i := range all {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		listeners = append(listeners, l)
		others = append(others,
			lb.Peer{Name: string(rune('a' + i)), Address: netip.MustParseAddrPort(l.Addr().String())})
	}
	for i, d := range all {
		var beside otherPeers
		for j, p := range others {
			if j != i {
				beside = append(beside, p)
			}
		}
		exchanges = append(exchanges, exchangeBeside(tb, d, others[i].Name, listeners[i], beside))
	}
	return exchanges
}

// exchangeBeside has a data plane hand over to others until the test ends.
func exchangeBeside(tb testing.TB, d *Datapath, name string, listener net.Listener, beside otherPeers) *peers.Exchange {
	tb.Helper()
	e, err := peers.New(peers.Options{Name: name, Keys: [][]byte{make([]byte, 32)}, Listener: listener, Group: beside,
		DataPlane: d, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	tb.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() { e.Run(ctx) })
	return e
}

// until waits for a condition that must become true.
func until(tb testing.TB, is func() bool) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(testenv.WaitLimit); !is(); {
		select {
		case <-end:
			tb.Fatal("it has not come in a minute")
		case <-tick.C:
		}
	}
}

// TestExchange: flows that are proven at one of three balancers, and the base of a transition that one has not seen,
// reach all.
func TestExchange(t *testing.T) {
	tracked, computed := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3), testService(vip4, 81, lb.TCP, lb.Maglev, 5)
	a, b := newPeer(t, tracked, computed), newPeer(t, tracked, computed)
	at := map[int]string{}
	for port := 1000; port < 1000+handedFlows; port++ {
		at[port] = a.send(port, "S", "A")
	}
	a.apply(tracked, drained(computed, 1))
	late := newPeer(t, tracked, drained(computed, 1))
	exchangeAmong(t, a.Datapath, b.Datapath, late.Datapath)
	for _, m := range []peer{b, late} {
		until(t, func() bool { return len(m.snapshot()) == handedFlows })
		for port, backend := range at {
			if got := m.send(port, "A"); got != backend {
				t.Errorf("port %d goes to %s, and went to %s", port, got, backend)
			}
		}
	}
	until(t, func() bool {
		bases, err := late.Bases()
		return err == nil && len(bases) == 1 && bases[0].Size == testTableSize
	})
}

// manyFlows are n flows of a service.
func manyFlows(s *lb.RoutedService, n int) []lb.Flow {
	flows := make([]lb.Flow, n)
	for i := range flows {
		client := netip.AddrFrom4([4]byte{198, 19, byte(i >> 16), byte(i >> 8)})
		flows[i] = lb.Flow{Backend: s.BackendKey(s.Backends[i%len(s.Backends)]),
			Client: netip.AddrPortFrom(client, uint16(1024+i&0xff)), State: lb.FlowEstablished, Proven: true}
	}
	return flows
}

// cpu is the CPU time of the process.
func cpu() time.Duration {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkHandover measures the cost of a large hand-over: both ends of it, over loopback.
func BenchmarkHandover(b *testing.B) {
	testenv.Root(b)
	const million = costPlaces
	walk := func(d *Datapath) (n int) {
		for whole := false; !whole; {
			var err error
			if whole, err = d.ChangedFlows(1<<16, func(*lb.Flow) { n++ }); err != nil {
				b.Fatal(err)
			}
		}
		return n
	}
	full, s := newHandoverPlane(b)
	other, _ := newHandoverPlane(b)
	flows := manyFlows(&s, million)
	begun := time.Now()
	taken, err := full.MergeFlows(flows)
	if err != nil || taken.New < million*99/100 {
		b.Fatalf("%+v, %v", taken, err)
	}
	b.Logf("taking %d of a million flows takes %v", taken.New, time.Since(begun))
	b.Run("walk over a million", func(b *testing.B) {
		walk(full)
		for b.Loop() {
			walk(full)
		}
	})
	b.Run("snapshot of a million", func(b *testing.B) {
		used, begun := cpu(), time.Now()
		exchanges := exchangeAmong(b, full, other)
		until(b, func() bool { _, heard := exchanges[1].Status(); return len(heard) == 1 && heard[0].Complete })
		b.ReportMetric(time.Since(begun).Seconds(), "s")
		told, _ := exchanges[0].Status()
		b.ReportMetric(float64(told[0].Bytes)/float64(told[0].Flows), "B/flow")
		b.ReportMetric(float64(cpu()-used)/float64(told[0].Flows), "cpu-ns/flow")
	})
}
