// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testservice"
)

// TestTwoBalancersAgree compares two data planes, each with a secret of its own, whose files have the backends in
// another order: 10,000 flows go to the same backends, by tables small and large, before and after a backend is
// removed, and the digests are equal; with a backend that only one has they differ.
func TestTwoBalancersAgree(t *testing.T) {
	const flows = 10_000
	enterTestNet(t)
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	weigh(&s, 1, 2, 3, 1, 5)
	one, other := newDigestRig(t, s), newDigestRig(t, testservice.Reversed(s))
	if one.datapath.secret == other.datapath.secret {
		t.Fatal("both have one secret")
	}
	random := rand.New(rand.NewPCG(1, 2))
	expect := func(when string, agree bool) {
		t.Helper()
		differ := 0
		for range flows / 2 {
			client := netip.AddrFrom4([4]byte{203, 0, byte(random.Uint32()), byte(random.Uint32())})
			frame := packetSpec{from: client, at: vip4, sport: uint16(1 + random.IntN(65535)), dport: 80,
				flags: "S"}.build(t)
			if one.backendMAC(t, frame) != other.backendMAC(t, frame) {
				differ++
			}
		}
		a, b := one.digest(t), other.digest(t)
		if (differ == 0) != agree || (a == b) != agree || a == 0 {
			t.Errorf("%s: %d of %d flows go elsewhere, digests %016x and %016x", when, differ, flows/2, a, b)
		}
	}
	expect("at first", true)
	s.Paths[2].MAC = nil
	one.apply(t, s)
	expect("one has lost a backend", false)
	other.apply(t, testservice.Reversed(s))
	expect("both have lost a backend", true)
}

// digestRig is a data plane of one service.
type digestRig struct {
	datapath *Datapath
	out      []byte
}

func newDigestRig(t *testing.T, s lb.RoutedService) *digestRig {
	t.Helper()
	a := &digestRig{NewDetached(Options{Hook: lb.HookXDP}, balancerMAC), make([]byte, 2048)}
	t.Cleanup(func() { a.datapath.Close() })
	a.apply(t, s)
	return a
}

func (a *digestRig) apply(t *testing.T, s lb.RoutedService) {
	t.Helper()
	s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
	if err := a.datapath.Apply(lb.State{Services: []lb.RoutedService{s}}); err != nil {
		t.Fatal(err)
	}
}

// backendMAC is the MAC address that a frame is sent to.
func (a *digestRig) backendMAC(t *testing.T, frame []byte) string {
	t.Helper()
	options := ebpf.RunOptions{Data: frame, DataOut: a.out, Repeat: 1}
	action, err := a.datapath.Program().Run(&options)
	if err != nil {
		t.Fatal(err)
	}
	if action != actions[lb.HookXDP].transmit && action != actions[lb.HookXDP].redirect {
		t.Fatalf("a SYN ends with action %d", action)
	}
	return net.HardwareAddr(options.DataOut[:6]).String()
}

func (a *digestRig) digest(t *testing.T) uint64 {
	t.Helper()
	counters, err := a.datapath.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return counters.Services[lb.ServiceKey{VIP: vip4, Port: 80, Protocol: lb.TCP}].TableDigest
}
