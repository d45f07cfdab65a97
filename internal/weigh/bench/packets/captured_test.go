// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
)

// BenchmarkCaptured sends bursts of the same packets in turn through a balancer without a capture, and through one for
// each of the measured captures. It reports the medians of the time per packet. A burst has so few packets that most
// bursts are not interrupted, whatever else runs on the machine. It has so many that loading a program's code, which
// the other programs have evicted from the caches, and switching XDP's dispatcher to it cost little.
func BenchmarkCaptured(b *testing.B) {
	testenv.Root(b)
	const burst = 10_000
	names := slices.Concat([]string{""}, slices.Sorted(maps.Keys(captured)))
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		b.Run(string(hook), func(b *testing.B) {
			h, err := harness.New(hook, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			programs := map[string]*ebpf.Program{}
			for _, name := range names {
				programs[name] = capturingBalancer(b, hook, name)
			}
			stream, took := harness.Stream{Frame: ack4(web4), Count: 1 << 10}, map[string][]float64{}
			for b.Loop() {
				for _, name := range names {
					ns, err := harness.Uninterrupted(func() (float64, error) {
						return h.Send(programs[name], stream, burst)
					})
					if err != nil {
						b.Fatal(err)
					}
					took[name] = append(took[name], ns)
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, name := range names {
				slices.Sort(took[name])
				b.ReportMetric(took[name][len(took[name])/2], strings.ReplaceAll("ns/packet:"+name, " ", "-"))
			}
		})
	}
}

// capturingBalancer returns the program of a balancer with one service and a running capture; "" means no capture.
func capturingBalancer(b *testing.B, hook lb.Hook, name string) *ebpf.Program {
	b.Helper()
	s := oneService
	s.captured = name
	balancer := harness.NewBalancer(hook, harness.Room{})
	b.Cleanup(func() { balancer.Close() })
	if err := balancer.Apply(s.state()); err != nil {
		b.Fatal(err)
	}
	running, err := startCapture(balancer, s)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := running.stop(); err != nil {
			b.Error(err)
		}
	})
	return balancer.Program()
}
