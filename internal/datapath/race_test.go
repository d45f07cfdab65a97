// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

// TestFullNATOnSeveralCPUs opens the same flows from several threads at once, as
// SYNs that were sent twice arrive on two queues of a network card. Each flow must
// have one port in the end, and no port may be left without its flow: nobody would
// give it back.
func TestFullNATOnSeveralCPUs(t *testing.T) {
	testenv.Root(t)
	service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	service.Mode = lb.FullNAT
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize}, balancerMAC)
	t.Cleanup(func() { d.Close() })
	state := State{Services: []Service{service}, Pool: Pool{Addresses: []netip.Addr{vip4.Next()}, FirstPort: 20000, LastPort: 59999}}
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
	if there, ports := entries(t, d.shared.natFlows), entries(t, d.shared.natReturns); there != flows || ports != flows {
		t.Errorf("%d flows and %d ports, want %d of each", there, ports, flows)
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

// entries counts what is in a map.
func entries(t *testing.T, m *ebpf.Map) int {
	t.Helper()
	n, key := 0, make([]byte, m.KeySize())
	for err := m.NextKey(nil, &key); ; err = m.NextKey(key, &key) {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}
