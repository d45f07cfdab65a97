// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// update is a kind of change of one backend: away from new flows, and back.
type update struct {
	name           string
	drain, restore func(s *lb.RoutedService, backend int, mac net.HardwareAddr)
}

var updates = []update{
	{"down and up",
		func(s *lb.RoutedService, j int, _ net.HardwareAddr) { s.Paths[j].MAC = nil },
		func(s *lb.RoutedService, j int, mac net.HardwareAddr) { s.Paths[j].MAC = mac }},
	{"weight 0 and 1",
		func(s *lb.RoutedService, j int, _ net.HardwareAddr) { s.Backends[j].Weight = 0 },
		func(s *lb.RoutedService, j int, _ net.HardwareAddr) { s.Backends[j].Weight = 1 }},
	{"drained and enabled",
		func(s *lb.RoutedService, j int, _ net.HardwareAddr) { s.Backends[j].Draining = true },
		func(s *lb.RoutedService, j int, _ net.HardwareAddr) { s.Backends[j].Draining = false }},
}

// changes measures how long it takes until the change of one backend is in effect in the data plane. A packet proves
// that it is.
func (b *bench) changes(ctx context.Context, s shape) error {
	cfg, _, err := s.parse()
	if err != nil {
		return err
	}
	balancer, _, err := b.load(s, cfg)
	if err != nil {
		return err
	}
	defer balancer.Close()
	c := &changer{bench: b, shape: s, balancer: balancer, state: s.state(cfg),
		flows: map[int]map[uint32][]netip.AddrPort{},
		// Fixed seeds, so that a run can be repeated.
		random: rand.New(rand.NewPCG(uint64(s.services), uint64(s.backends)))}
	for _, kind := range updates {
		b.Progress(fmt.Sprintf("%v: %s", s, kind.name))
		if err := c.run(ctx, kind); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}

// changer changes one backend at a time.
type changer struct {
	*bench
	shape    shape
	balancer *datapath.Datapath
	state    lb.State
	random   *rand.Rand
	// flows are unused flows of each service, by the number of the backend that they reach.
	flows map[int]map[uint32][]netip.AddrPort
}

// run makes and measures the changes of one kind.
func (c *changer) run(ctx context.Context, kind update) error {
	var took []time.Duration
	var wrong []string
	for len(took) < c.Changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		service, backend, flows, err := c.pick()
		if err != nil {
			return err
		}
		number := c.shape.number(service, backend)
		mac := c.state.Services[service].Paths[backend].MAC
		for i, step := range []func(*lb.RoutedService, int, net.HardwareAddr){kind.drain, kind.restore} {
			duration, err := c.apply(service, func(s *lb.RoutedService) { step(s, backend, mac) })
			if err != nil {
				return err
			}
			took = append(took, duration)
			to, err := c.shape.ask(c.balancer, service, flows[i])
			if err != nil {
				return err
			}
			if (to == number) != (i == 1) {
				wrong = append(wrong, fmt.Sprintf("after change %d a packet went to backend %d", len(took), to))
			}
		}
	}
	slices.Sort(took)
	c.add(c.shape, kind.name, 1, map[string]float64{
		results.Updates:     float64(len(took)),
		results.UpdateMsP50: milliseconds(percentile(took, 50)),
		results.UpdateMsP99: milliseconds(percentile(took, 99)),
		results.UpdateMsMax: milliseconds(took[len(took)-1]),
	}, wrong[:min(len(wrong), 3)]...)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile returns the smallest of the sorted values that is at least as large as percent per cent of them.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

// apply changes a service and applies the complete state to the data plane, as the control plane does. It returns how
// long the data plane took. It does not modify any state that the data plane got before.
func (c *changer) apply(service int, change func(*lb.RoutedService)) (time.Duration, error) {
	next := lb.State{Services: slices.Clone(c.state.Services)}
	s := &next.Services[service]
	s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
	change(s)
	begun := time.Now()
	err := c.balancer.Apply(next)
	took := time.Since(begun)
	c.state = next
	return took, err
}

// errNoFlows means that too few flows were tried.
var errNoFlows = errors.New("no backend with two flows that were not used was found")

// pick selects a backend, and two flows that reach it.
func (c *changer) pick() (service, backend int, flows []netip.AddrPort, err error) {
	for range 100 {
		service = c.random.IntN(c.shape.services)
		known := c.flows[service]
		if known == nil {
			if known, err = c.fetchBackends(service); err != nil {
				return 0, 0, nil, err
			}
			c.flows[service] = known
		}
		backend = c.random.IntN(c.shape.backends)
		number := c.shape.number(service, backend)
		if of := known[number]; len(of) >= 2 {
			known[number] = of[2:]
			return service, backend, of[:2], nil
		}
	}
	return 0, 0, nil, errNoFlows
}

// fetchBackends determines which backends the flows of a service reach. The flows are not stored by that: the packets
// open no flows, and the service has not changed yet.
func (c *changer) fetchBackends(service int) (map[uint32][]netip.AddrPort, error) {
	frame := harness.NewFrame(netip.AddrPortFrom(firstClient, 0), netip.AddrPortFrom(c.shape.vip(service), port),
		lb.TCP, packet.FlagACK)
	// At least four for each backend.
	flows := uint32(64)
	for flows < uint32(8*c.shape.backends) {
		flows *= 2
	}
	seen, err := c.harness.Record(c.balancer.Program(), harness.Stream{Frame: frame, Count: flows}, flows)
	if err != nil {
		return nil, err
	}
	by := map[uint32][]netip.AddrPort{}
	for _, flow := range seen {
		from := netip.AddrPortFrom(plus(netip.IPv4Unspecified(), int(flow.Source)), flow.SourcePort)
		by[flow.To] = append(by[flow.To], from)
	}
	return by, nil
}
