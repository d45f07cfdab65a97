// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestPoolChangesUnderFlows: flows go on from the address that they have, whatever comes into the pool or leaves it
// beside that, and replies find them. One whose address has left is dropped, and goes on when that is back; new flows
// get ports of this balancer's own addresses alone.
func TestPoolChangesUnderFlows(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	s.Mode = lb.FullNAT
	first, added, other := netip.MustParseAddr("198.18.0.77"), netip.MustParseAddr("198.18.0.76"),
		netip.MustParseAddr("198.18.0.78")
	a, b := newPeer(t), newPeer(t)
	have := func(others []netip.Addr, own ...netip.Addr) {
		t.Helper()
		a.applyWith(lb.Pool{Addresses: own, Others: others, FirstPort: 20000, LastPort: 20063}, s)
	}
	beside := []netip.Addr{other}
	have(beside, first)
	b.applyWith(lb.Pool{Addresses: beside, Others: []netip.Addr{first}, FirstPort: 20000, LastPort: 20063}, s)
	for port := 1000; port < 1008; port++ {
		a.send(port, "S", "A")
		b.send(port+100, "S", "A")
	}
	a.take(b.changed(), mergeResult{New: 8})
	flows := a.snapshot()
	if len(flows) != 16 {
		t.Fatalf("%d flows, want 16", len(flows))
	}
	goOn := func(when string, but netip.Addr) {
		t.Helper()
		for _, f := range flows {
			packet := with(web4(), func(p *packetSpec) { p.sport, p.flags = f.Client.Port(), "A" })
			reply := answersTo(&s, f.Source)
			from, to, replyFrom, replyTo := f.Source.Addr(), s.Backends[0].Address, vip4, client4
			if from == but { // as they were sent
				from, to, replyFrom, replyTo = packet.from, packet.at, reply.from, reply.at
			}
			if gotFrom, gotTo := a.run(packet); gotFrom != from || gotTo != to {
				t.Errorf("%s, a flow from %s goes on from %s to %s, want from %s to %s", when, f.Source, gotFrom,
					gotTo, from, to)
			}
			if gotFrom, gotTo := a.run(reply); gotFrom != replyFrom || gotTo != replyTo {
				t.Errorf("%s, a reply to %s goes from %s to %s, want from %s to %s", when, f.Source, gotFrom, gotTo,
					replyFrom, replyTo)
			}
		}
	}
	begun := 2000
	begin := func(when string, own ...netip.Addr) {
		t.Helper()
		for range 8 {
			a.send(begun, "S", "A")
			begun++
		}
		for _, f := range a.changed() {
			if int(f.Client.Port()) >= begun-8 && !slices.Contains(own, f.Source.Addr()) {
				t.Errorf("%s, a new flow goes from %s, want one of %v", when, f.Source, own)
			}
		}
	}
	goOn("at first", netip.Addr{})
	have(beside, added, first)
	goOn("with another address", netip.Addr{})
	begin("with another address", added, first)
	have(beside, added)
	goOn("without the first", first)
	begin("without the first", added)
	have(nil, first, added)
	goOn("with the first again, and without the other balancer's", other)
	begin("with the first again", first, added)
	have([]netip.Addr{added, other}, first)
	goOn("with all", netip.Addr{})
	begin("with all", first)
}

// TestPoolNumbersOutliveTheProcess: a process that goes on with the data plane of another has the numbers that flows
// carry, whatever its pool is.
func TestPoolNumbersOutliveTheProcess(t *testing.T) {
	testenv.Root(t)
	one, two := netip.MustParseAddr("198.18.0.77"), netip.MustParseAddr("2001:2::78")
	testenv.In(t, newNICs(t), func() error {
		k, state := newRestartRig(t), testState()
		state.Services[0].Mode = lb.FullNAT
		state.Pool = lb.Pool{Addresses: []netip.Addr{netip.MustParseAddr("198.18.0.76"), one, two}, FirstPort: 20000,
			LastPort: 20063}
		first, err := k.openWith(state)
		if err != nil {
			return err
		}
		again, err := k.next(first)
		if err != nil {
			return err
		}
		defer again.Close()
		state.Pool.Addresses = []netip.Addr{two, one}
		if err := again.Apply(state); err != nil {
			return err
		}
		if got, want := fmt.Sprint(again.current.Memory.Numbers),
			fmt.Sprint(generation.PoolNumbers{{{}, one}, {two}}); got != want {
			t.Errorf("the numbers are %s, want %s", got, want)
		}
		return nil
	})
}
