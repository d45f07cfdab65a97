// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

// TestExpire: each flow goes after the silence that its state allows, both ends
// of it, and no other.
func TestExpire(t *testing.T) {
	testenv.Root(t)
	service := testService(vip4, 80, lb.TCP, lb.Maglev, 1)
	service.Mode = lb.FullNAT
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FullNATFlows: 1 << 14}, balancerMAC)
	t.Cleanup(func() { d.Close() })
	if err := d.Apply(State{Services: []Service{service}, Pool: Pool{FirstPort: 20000, LastPort: 40000}}); err != nil {
		t.Fatal(err)
	}
	const replied = uint16(xdpNatStateNAT_REPLIED)
	cases := []struct {
		name  string
		state uint16
		idle  time.Duration
	}{
		{"established", replied, idleEstablished},
		{"unanswered", 0, idleUnanswered},
		{"half closed", replied | uint16(xdpNatStateNAT_CLIENT_FIN), idleClosing},
		{"closed", replied | uint16(xdpNatStateNAT_CLIENT_FIN|xdpNatStateNAT_BACKEND_FIN), idleClosed},
		{"reset", replied | uint16(xdpNatStateNAT_RESET), idleClosed},
		{"UDP", replied | uint16(xdpNatStateNAT_UDP), idleUDP},
		{"UDP without an answer", uint16(xdpNatStateNAT_UDP), idleUnanswered},
	}
	seen := 10 * time.Hour // of a clock that began with the machine
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			key := xdpFlowKey{Port: uint16(i)}
			flow := xdpNatFlow{Seen: uint64(seen), State: c.state, Port: uint16(i), Protocol: 6}
			back := xdpNatReturnKey{DestinationPort: uint16(i), Protocol: 6}
			put(t, d.shared.natFlows, key, flow)
			put(t, d.shared.natReturns, back, xdpNatReturn{})
			for _, at := range []struct {
				now  time.Duration
				want int
			}{{seen + c.idle, 0}, {seen + c.idle + time.Second, 1}} {
				if n, err := d.expire(at.now); n != at.want || err != nil {
					t.Fatalf("%v after the last packet: %d expired, %v; want %d", at.now-seen, n, err, at.want)
				}
			}
			var gone xdpNatReturn
			if err := d.shared.natReturns.Lookup(back, &gone); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("the end of replies is still there: %v", err)
			}
		})
	}
	t.Run("many at once", func(t *testing.T) {
		const many = 3 * expireBatch
		for i := range uint32(many) {
			put(t, d.shared.natFlows, xdpFlowKey{Service: i, Port: 7}, xdpNatFlow{Seen: uint64(seen), BackendAddress: [4]uint32{i}})
			put(t, d.shared.natReturns, xdpNatReturnKey{Source: [4]uint32{i}}, xdpNatReturn{})
		}
		put(t, d.shared.natFlows, xdpFlowKey{Port: 8}, xdpNatFlow{Seen: uint64(seen), State: replied})
		if n, err := d.expire(seen + 2*idleUnanswered); n != many || err != nil {
			t.Errorf("%d of %d expired, %v", n, many, err)
		}
		if counters, err := d.Counters(); err != nil || counters.FullNATFlows != 1 || counters.FullNATLimit != 1<<14 {
			t.Errorf("%d of %d flows are left, %v; want 1", counters.FullNATFlows, counters.FullNATLimit, err)
		}
	})
}

func put(t *testing.T, m *ebpf.Map, key, value any) {
	t.Helper()
	if err := m.Put(key, value); err != nil {
		t.Fatal(err)
	}
}
