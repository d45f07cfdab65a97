// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestFullNATOnSeveralCPUs opens the same flows from several threads at once, as
// SYNs that were sent twice arrive on two queues of a network card. Each flow must
// have one port in the end, and no port may be left without its flow: nothing would
// give it back.
func TestFullNATOnSeveralCPUs(t *testing.T) {
	testenv.Root(t)
	service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	service.Mode = lb.FullNAT
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize}, balancerMAC)
	t.Cleanup(func() { d.Close() })
	state := lb.State{Services: []lb.RoutedService{service}, Pool: lb.Pool{Addresses: []netip.Addr{vip4.Next()},
		FirstPort: 20000, LastPort: 59999}}
	if err := d.Apply(state); err != nil {
		t.Fatal(err)
	}
	const flows, threads = 3000, 4
	frames := make([][]byte, flows)
	for i := range frames {
		frames[i] = packetSpec{from: client4, at: vip4, sport: uint16(1024 + i), dport: 80, flags: "S"}.build(t)
	}
	var group sync.WaitGroup
	for range threads {
		group.Go(func() {
			for _, frame := range frames {
				if _, _, err := d.Program().Test(frame); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	there, ports := 0, map[objects.XDPFlow]bool{}
	for i := range d.shared.Unproven.Buckets {
		for _, place := range placesIn(&d.shared.Unproven.Buckets[i]) {
			flow := place.Flow()
			there++
			ports[objects.XDPFlow{Backend: flow.Backend, Source: flow.Source}] = true
		}
	}
	if there != flows || len(ports) != flows {
		t.Errorf("%d flows with %d ports, want %d of each", there, len(ports), flows)
	}
	if led := leading(d); led != flows {
		t.Errorf("replies would find %d flows, want %d", led, flows)
	}
	counters, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	opened := uint64(0)
	for _, count := range counters.Backends {
		opened += count.Connections
	}
	if opened != flows {
		t.Errorf("%d connections were counted, want %d", opened, flows)
	}
}

// placesIn lists the places of a bucket that have a flow.
func placesIn(b *objects.XDPFlowBucket) (taken []flowtable.Place) {
	for at := range flowtable.PerBucket {
		if place := (flowtable.Place{Bucket: b, At: at}); place.Tag() > flowtable.BusyTag {
			taken = append(taken, place)
		}
	}
	return taken
}

// leading counts the entries of the table of returns that lead to their flow.
func leading(d *Datapath) (n int) {
	for i := range d.shared.FullNAT.Buckets {
		b := &d.shared.FullNAT.Buckets[i]
		for at, place := range b.Places {
			if b.Tags[at/4]>>(at%4*16)&0xffff > flowtable.BusyTag && d.janitor.Input.IsValidReturn(place,
				b.Owners[at]) {
				n++
			}
		}
	}
	return n
}
