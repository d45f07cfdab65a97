// SPDX-License-Identifier: Apache-2.0

// Package distribution counts the new flows that each backend gets, scheduler by scheduler, and compares the counts
// with the share that each backend should get. It opens the flows in the data plane itself, through BPF_PROG_TEST_RUN.
package distribution

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/maglev"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Options set how much is counted.
type Options struct {
	// Rounds is the number of times that every case is counted, each time with other flows.
	Rounds int
	// Flows is the number of flows that are opened in each case; a power of two.
	Flows uint32
	// Progress is called after each round, if set.
	Progress func(round, rounds int)
	// backends and weightings are the cases; nil means defaultBackends and defaultWeightings.
	backends   []int
	weightings []weighting
}

// load is the name of the load in the results.
const load = "distribution"

// The measured subject. The hook does not affect which backend is selected, and in TC the kernel needs no time to begin
// and to end a run.
const (
	hook    = lb.HookTC
	subject = "jeoul-l2dsr-tc"
)

// ErrFlows means that Options.Flows is out of range.
var ErrFlows = errors.New("the number of flows must be a power of two from 1024 to 4194304")

// Bounds of Options.Flows: at least some flows for each backend, and at most the number of clients of the stream by
// address.
const (
	minFlows = 1 << 10
	maxFlows = 1 << addressBits
)

// defaultBackends are the numbers of backends of the measured services.
var defaultBackends = []int{7, 25, 1000}

// weighting is a named list of weights, which backends get in turn.
type weighting struct {
	name  string
	turns []uint16
}

var defaultWeightings = []weighting{{"equal", []uint16{1}}, {"1:2:4", []uint16{1, 2, 4}}}

// ending says which flows end while others are opened.
type ending string

const (
	// stay: no flow ends.
	stay ending = "none"
	// half: a random half of each step's flows ends before the next step.
	half ending = "half"
)

// benchCase is a case: a service whose new flows are counted.
type benchCase struct {
	scheduler lb.Scheduler
	backends  int
	weights   weighting
	ending    ending
}

// cases returns all cases with these numbers of backends and weightings.
func cases(backends []int, weightings []weighting) []benchCase {
	var list []benchCase
	for _, scheduler := range lb.Schedulers {
		for _, n := range backends {
			for _, weights := range weightings {
				list = append(list, benchCase{scheduler, n, weights, stay})
				if scheduler.ByLoad() {
					list = append(list, benchCase{scheduler, n, weights, half})
				}
			}
		}
	}
	return list
}

func (c benchCase) params(flows uint32) map[string]any {
	return map[string]any{"scheduler": string(c.scheduler), "backends": c.backends,
		"weights": c.weights.name, "flows": flows, "ended": string(c.ending)}
}

// Measure counts every case in every round. If it fails or ctx ends, it also returns the trials until then. Errors:
// ErrFlows, datapath.ErrNoRights, the error of ctx.
func Measure(ctx context.Context, options Options) (trials []results.Trial, err error) {
	if f := options.Flows; f < minFlows || f > maxFlows || f&(f-1) != 0 {
		return nil, fmt.Errorf("%w, not %d", ErrFlows, f)
	}
	if options.backends == nil {
		options.backends = defaultBackends
	}
	if options.weightings == nil {
		options.weightings = defaultWeightings
	}
	err = harness.Pinned(func() error {
		h, err := harness.New(hook, options.Flows)
		if err != nil {
			return err
		}
		defer h.Close()
		for round := 1; round <= options.Rounds; round++ {
			for _, c := range cases(options.backends, options.weightings) {
				if err := ctx.Err(); err != nil {
					return err
				}
				var trial results.Trial
				_, err := harness.Uninterrupted(func() (_ float64, err error) {
					trial, err = c.count(h, options.Flows, round)
					return 0, err
				})
				if err != nil {
					return fmt.Errorf("%v: %w", c.params(options.Flows), err)
				}
				trials = append(trials, trial)
			}
			if options.Progress != nil {
				options.Progress(round, options.Rounds)
			}
		}
		return nil
	})
	return trials, err
}

// Addresses of the service, its backends and its clients. There must be many clients: the range between providers and
// their customers (RFC 6598) is a /10.
var (
	vip          = netip.AddrPortFrom(harness.VIP4(1), 80)
	firstBackend = netip.MustParseAddr("198.19.16.1")
	firstClient  = netip.MustParseAddr("100.64.0.0")
)

// Numbers of bits of a flow's number that vary its client's address: all of them, or so few that a client has many
// flows.
const (
	addressBits = 22
	clientBits  = 16
)

// service returns the service of a case.
func (c benchCase) service() lb.RoutedService {
	return harness.Service(lb.Service{VIP: vip.Addr(), Port: vip.Port(), Protocol: lb.TCP, Mode: lb.L2DSR,
		Scheduler: c.scheduler, TableSize: lb.DefaultTableSize(c.backends)}, firstBackend, c.backends,
		c.weights.turns...)
}

// count opens the flows of a case in a new balancer. Errors: harness.ErrInterrupted, if more flows were opened.
func (c benchCase) count(h *harness.Harness, flows uint32, round int) (results.Trial, error) {
	trial := results.Trial{Subject: subject, Load: load, Params: c.params(flows), Repeat: round,
		Valid: true, Saturated: results.SaturatedNone, Notes: []string{}}
	balancer := harness.NewBalancer(hook, harness.Room{Flows: flows, Unproven: 2 * flows})
	defer balancer.Close()
	service := c.service()
	if err := balancer.Apply(lb.State{Services: []lb.RoutedService{service}}); err != nil {
		return trial, err
	}
	if err := c.open(h, balancer, flows, uint32(round-1)*flows); err != nil {
		return trial, err
	}
	counters, err := balancer.Counters()
	if err != nil {
		return trial, err
	}
	counts := make([]uint64, c.backends)
	opened := uint64(0)
	for i, backend := range service.Backends {
		count := counters.Backends[service.BackendKey(backend)]
		opened += count.Connections
		counts[i] = count.Connections
		if c.ending == half {
			// Schedulers that compare open flows balance those, and not the new ones.
			counts[i] = uint64(count.Active)
		}
		trial.Backends = append(trial.Backends, results.Backend{
			Name: backend.Name, Address: backend.Address.String(), Connections: counts[i]})
	}
	if opened != uint64(flows) {
		trial.Valid = false
		trial.Notes = append(trial.Notes, fmt.Sprintf("%d flows were counted, and %d were opened", opened, flows))
	}
	trial.Metrics, err = c.metrics(service, counts)
	return trial, err
}

// step is the number of flows that are opened before some of them end.
const step = 1 << 14

// open opens the flows of a case, from number first on.
func (c benchCase) open(h *harness.Harness, balancer *datapath.Datapath, flows, first uint32) error {
	frame := func(flags byte) harness.Frame {
		return harness.NewFrame(netip.AddrPortFrom(firstClient, 0), vip, lb.TCP, flags)
	}
	bits := uint32(clientBits)
	if c.service().BySource() {
		// One flow of each client: the others would go to the same backend.
		bits = addressBits
	}
	send := func(flags byte, next, packets uint32) error {
		stream := harness.Stream{Frame: frame(flags), Count: flows, Next: next, Offset: first, AddressBits: bits}
		_, err := h.Send(balancer.Program(), stream, packets)
		return err
	}
	if c.ending == stay {
		return send(packet.FlagSYN, 0, flows)
	}
	return c.openAndEnd(h, balancer, send, flows, first)
}

// openAndEnd opens flows step by step, and ends some of a step's flows, chosen at random, after that step.
func (c benchCase) openAndEnd(h *harness.Harness, balancer *datapath.Datapath,
	send func(flags byte, next, packets uint32) error, flows, first uint32) error {
	random := rand.New(rand.NewPCG(uint64(first), uint64(c.backends)))
	reset := harness.NewFrame(netip.AddrPortFrom(firstClient, 0), vip, lb.TCP, packet.FlagRST)
	for next := uint32(0); next < flows; next += step {
		opened := min(step, flows-next)
		if err := send(packet.FlagSYN, next, opened); err != nil {
			return err
		}
		var end []harness.Tuple
		for i := range opened {
			if random.IntN(2) == 0 {
				stream := harness.Stream{Frame: reset, Count: flows, Offset: first, AddressBits: clientBits}
				end = append(end, stream.Flow(next+i))
			}
		}
		kept, err := h.StoreFlows(reset, end)
		if err != nil {
			return err
		}
		_, err = h.Send(balancer.Program(), harness.Stream{Frame: reset, Count: step, Recording: kept},
			uint32(len(end)))
		h.Reset(0)
		if err != nil {
			return err
		}
	}
	return nil
}

// metrics compares counts with the shares that the backends should have.
func (c benchCase) metrics(service lb.RoutedService, counts []uint64) (map[string]float64, error) {
	f := fitOf(counts, c.shares())
	metrics := map[string]float64{
		results.ChiSquared:          f.chiSquared,
		results.DegreesOfFreedom:    float64(f.freedom),
		results.PValue:              f.p,
		results.DeviationPercentMax: f.deviation,
		results.FlowsElsewhere:      float64(f.elsewhere),
	}
	if !c.scheduler.Hashes() {
		return metrics, nil
	}
	slots, err := slotsOf(service)
	if err != nil {
		return nil, err
	}
	table, inTable := fitOf(slots, c.shares()), make([]float64, len(slots))
	for i, n := range slots {
		inTable[i] = float64(n)
	}
	f = fitOf(counts, inTable)
	metrics[results.TableDeviationPercentMax] = table.deviation
	metrics[results.TableChiSquared], metrics[results.TablePValue] = f.chiSquared, f.p
	return metrics, nil
}

// shares returns the shares of new flows that the backends should get, in any unit.
func (c benchCase) shares() []float64 {
	shares := make([]float64, c.backends)
	for i := range shares {
		switch {
		case c.scheduler == lb.Failover:
			// The first backend gets all flows.
			if i == 0 {
				shares[i] = 1
			}
		case c.scheduler.Weighted():
			shares[i] = float64(c.weights.turns[i%len(c.weights.turns)])
		default:
			shares[i] = 1
		}
	}
	return shares
}

// slotsOf returns the number of slots that each backend has in a service's table. Tables identify backends by address
// and port.
func slotsOf(service lb.RoutedService) ([]uint64, error) {
	var names []string
	var weights []uint32
	for _, backend := range service.Backends {
		names = append(names, netip.AddrPortFrom(backend.Address, backend.Port).String())
		weights = append(weights, uint32(backend.Weight))
	}
	table, err := maglev.Build(weights, names, service.TableSize)
	if err != nil {
		return nil, err
	}
	slots := make([]uint64, len(names))
	for _, backend := range table {
		slots[backend]++
	}
	return slots, nil
}
