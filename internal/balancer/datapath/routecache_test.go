// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// stayOnThisCPU keeps the calling goroutine, which has a thread of its own, where each
// CPU has a memory of its own.
func stayOnThisCPU(tb testing.TB) {
	tb.Helper()
	var cpu int
	var one, all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		tb.Fatal(err)
	}
	for !all.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			tb.Error(err)
		}
	})
}

// setNeighbour gives a client on the near link another MAC address.
func setNeighbour(tb testing.TB, client netip.Addr, mac net.HardwareAddr) {
	tb.Helper()
	err := netlink.NeighSet(&netlink.Neigh{LinkIndex: nearLink.index, IP: client.AsSlice(), HardwareAddr: mac,
		State: netlink.NUD_PERMANENT})
	if err != nil {
		tb.Fatal(err)
	}
}

// TestRouteCache: replies go by the route that the kernel gave for earlier ones, but not for longer than a tick of the
// clock, nor for more of them than ROUTE_CACHE_USES.
func TestRouteCache(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		stayOnThisCPU(t)
		for _, vip := range vips {
			client := clientOf(0, vip.Is6(), neighbours-1)
			was, is := neighbourMAC(client), net.HardwareAddr{2, 7, 7, 7, 7, 7}
			tcp, udp := natReply(r.model, vip, false, client).build(t), natReply(r.model, vip, true, client).build(t)
			expect := func(what string, frame []byte, mac net.HardwareAddr) {
				t.Helper()
				if action, out := r.run(t, frame); action != actions[hook].redirect ||
					!bytes.Equal(out[:lb.MACLength], mac) {
					t.Errorf("%s: %s: action %d, to %v, want %d and %v", client, what, action,
						net.HardwareAddr(out[:lb.MACLength]), actions[hook].redirect, mac)
				}
			}
			t.Cleanup(func() { setNeighbour(t, client, was) })
			expect("at first", tcp, was)
			setNeighbour(t, client, is)
			expect("within a tick", tcp, was)
			expect("another protocol, for which rules may differ", udp, is)
			r.advance(t, 200*time.Millisecond)
			expect("in the next tick", tcp, is)
			setNeighbour(t, client, was)
			for range objects.XDPRouteCacheROUTE_CACHE_USES {
				expect("as many as may go by it", tcp, is)
			}
			expect("one more", tcp, was)
			expect("another protocol, in the next tick", udp, was)
		}
	})
}

// TestRouteCacheHasAnMTU: the sender of a packet that is too big for a cached route gets an error.
func TestRouteCacheHasAnMTU(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		stayOnThisCPU(t)
		for _, vip := range vips {
			reply := natReply(r.model, vip, false, clientOf(2, vip.Is6(), 5))
			reply.df = true
			for _, test := range []struct {
				payload int
				want    string
			}{{100, "returned"}, {500, "returned"}, {1300, "answered_too_big"}, {500, "returned"}} {
				reply.payload = test.payload
				expectOutcome(t, r, reply.build(t), test.want)
			}
		}
	})
}

// TestQuestionsUseNoRouteCache: a dry run asks the kernel for the route. It neither reads the cache nor adds to it.
func TestQuestionsUseNoRouteCache(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		stayOnThisCPU(t)
		reply := natReply(r.model, vip4, false, clientOf(0, false, neighbours-2))
		got, err := r.datapath.Explain(trace.Question{Source: reply.from, SourcePort: reply.sport,
			Destination: reply.at, DestinationPort: reply.dport,
			Protocol: lb.TCP, Flags: []string{"ack"}})
		if err != nil || got.Outcome != "returned" {
			t.Fatalf("%+v, %v", got, err)
		}
		var all []objects.XDPRouteEntry
		for at := range r.datapath.shared.RouteCache.MaxEntries() {
			if err := r.datapath.shared.RouteCache.Lookup(at, &all); err != nil {
				t.Fatal(err)
			}
			for _, known := range all {
				if known.Left != 0 {
					t.Fatalf("a question has left %+v", known)
				}
			}
		}
	})
}
