// SPDX-License-Identifier: Apache-2.0

// Package memory measures the kernel memory of remembered flows. The flows are opened and proven in the data plane
// itself, through BPF_PROG_TEST_RUN, and counted in the tables as the kernel has them.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Options say how much to measure.
type Options struct {
	// Flows are how many are remembered: one case each.
	Flows []uint32
	// Progress is called before each case, if set.
	Progress func(what string)
	// settled is harness.Settled, but in tests, for which the machine need not come to rest.
	settled func(context.Context) (uint64, error)
}

// load is the load's name in the results of these trials.
const load = "memory"

// The object of the measurement: in TC the kernel needs no time to begin and to end a run.
const (
	hook    = lb.HookTC
	subject = "jeoul-l2dsr-tc"
)

// ErrFlows means that one of Options.Flows is out of range.
var ErrFlows = errors.New("the number of flows must be from 1 to 100 million")

// mostFlows is a number of flows for which a machine has room that is not large.
const mostFlows = 100_000_000

// stage is how far flows have come.
type stage string

const (
	// proven flows have sent a packet beyond the SYN.
	proven stage = "proven"
	// unproven ones have not.
	unproven stage = "unproven"
)

// stored is a case: the flows of a service.
type stored struct {
	scheduler lb.Scheduler
	ipv6      bool
	stage     stage
	flows     uint32
}

// cases lists them: with a scheduler that remembers every flow, and with one that
// remembers none.
func cases(flows []uint32) []stored {
	var list []stored
	for _, n := range flows {
		for _, ipv6 := range []bool{false, true} {
			list = append(list,
				stored{lb.RoundRobin, ipv6, proven, n},
				stored{lb.RoundRobin, ipv6, unproven, n},
				stored{lb.Maglev, ipv6, proven, n})
		}
	}
	return list
}

func (s stored) params() map[string]any {
	family := "ipv4"
	if s.ipv6 {
		family = "ipv6"
	}
	return map[string]any{"scheduler": string(s.scheduler), "family": family, "stage": string(s.stage),
		"flows": s.flows}
}

// Measure measures every case. Where it fails, or ctx ends, the trials until then are
// returned too. Errors: ErrFlows, datapath.ErrNoRights, the context's.
func Measure(ctx context.Context, options Options) (trials []results.Trial, err error) {
	for _, n := range options.Flows {
		if n < 1 || n > mostFlows {
			return nil, fmt.Errorf("%w, not %d", ErrFlows, n)
		}
	}
	if options.settled == nil {
		options.settled = harness.Settled
	}
	err = harness.Pinned(func() error {
		h, err := harness.New(hook, 0)
		if err != nil {
			return err
		}
		defer h.Close()
		for _, s := range cases(options.Flows) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if options.Progress != nil {
				options.Progress(fmt.Sprintf("%d %s flows, %s, %s", s.flows, s.stage, s.scheduler,
					s.params()["family"]))
			}
			trial := results.Trial{Subject: subject, Load: load, Params: s.params(), Repeat: 1,
				Valid: true, Saturated: results.SaturatedNone, Notes: []string{}}
			// Where a signal came in between, more flows were sent than meant.
			if _, err := harness.Uninterrupted(func() (_ float64, err error) {
				trial.Metrics, err = s.measure(ctx, h, options.settled)
				return 0, err
			}); err != nil {
				return fmt.Errorf("%v: %w", s.params(), err)
			}
			trials = append(trials, trial)
		}
		return nil
	})
	return trials, err
}

// backends is the number of the service's backends.
const backends = 25

var (
	backend4 = netip.MustParseAddr("198.19.16.1")
	backend6 = netip.MustParseAddr("2001:2:0:2::1")
)

func (s stored) addresses() (client netip.Addr, vip netip.AddrPort, backend netip.Addr) {
	if s.ipv6 {
		return harness.Client6, netip.AddrPortFrom(harness.VIP6(1), 80), backend6
	}
	return harness.Client4, netip.AddrPortFrom(harness.VIP4(1), 80), backend4
}

// room is the capacity of the balancer's tables: for the flows of the case as many as there are, for the others the
// default.
func (s stored) room() harness.Room {
	switch {
	case !s.scheduler.Remembers():
		return harness.Room{}
	case s.stage == proven:
		return harness.Room{Flows: s.flows}
	}
	return harness.Room{Unproven: s.flows}
}

// measure remembers the flows of a case in a balancer of its own; settled returns the memory that the machine has left.
func (s stored) measure(ctx context.Context, h *harness.Harness,
	settled func(context.Context) (uint64, error)) (map[string]float64, error) {
	bare, err := settled(ctx)
	if err != nil {
		return nil, err
	}
	balancer := harness.NewBalancer(hook, s.room())
	defer balancer.Close()
	_, vip, backend := s.addresses()
	service := harness.Service(lb.Service{VIP: vip.Addr(), Port: vip.Port(), Protocol: lb.TCP,
		Mode: lb.L2DSR, Scheduler: s.scheduler}, backend, backends)
	if err := balancer.Apply(lb.State{Services: []lb.RoutedService{service}}); err != nil {
		return nil, err
	}
	before, err := take(balancer)
	if err != nil {
		return nil, err
	}
	if err := s.open(h, balancer); err != nil {
		return nil, err
	}
	after, err := take(balancer)
	if err != nil {
		return nil, err
	}
	full, err := settled(ctx)
	if err != nil {
		return nil, err
	}
	return s.metrics(before, after, bare-full), nil
}

// taken has the tables' memory and flows.
type taken struct {
	// bytes of the table that the flows of a stage are in, and of all maps.
	bytes map[stage]uint64
	all   uint64
	flows uint64
}

// tables are the kernel's names of the tables.
var tables = map[string]stage{"flows": proven, "newcomers": unproven}

// take looks at a balancer's tables.
func take(balancer *datapath.Datapath) (taken, error) {
	t := taken{bytes: map[stage]uint64{}}
	maps, err := harness.Memlock(balancer.Program())
	if err != nil {
		return t, err
	}
	t.all = maps.Total()
	for name, of := range tables {
		t.bytes[of] += maps[name]
	}
	t.flows, err = remembered(balancer)
	return t, err
}

// metrics gives the memory of a case's flows.
func (s stored) metrics(before, after taken, gone uint64) map[string]float64 {
	m := map[string]float64{
		results.FlowsSent:       float64(s.flows),
		results.FlowsRemembered: float64(after.flows),
		results.GrownBytes:      float64(after.all) - float64(before.all),
	}
	if !s.scheduler.Remembers() {
		m[results.BytesPerFlow] = m[results.GrownBytes] / float64(s.flows)
		return m
	}
	m[results.FlowsWithoutRoom] = float64(s.flows) - float64(after.flows)
	m[results.TableBytes] = float64(after.bytes[s.stage])
	if after.flows > 0 {
		m[results.BytesPerFlow] = m[results.TableBytes] / float64(after.flows)
		m[results.AvailableBytesPerFlow] = float64(int64(gone)) / float64(after.flows)
	}
	return m
}

// step is how many flows are opened before they are proven: few enough that all find
// room among the unproven.
const step = 1 << 16

// open opens the flows of a case, and proves them if they are to be. Errors:
// harness.ErrInterrupted, where more were opened at the end than meant. In between that
// does no harm: they are opened again, and not proven before.
func (s stored) open(h *harness.Harness, balancer *datapath.Datapath) error {
	client, vip, _ := s.addresses()
	send := func(flags byte, next, packets uint32) error {
		stream := harness.Stream{Frame: harness.NewFrame(netip.AddrPortFrom(client, 0), vip, lb.TCP, flags), Next: next}
		return h.SendAtLeast(balancer.Program(), stream, packets)
	}
	for next := uint32(0); next < s.flows; next += step {
		packets := min(step, s.flows-next)
		if err := send(packet.FlagSYN, next, packets); err != nil {
			return err
		}
		if sent, err := h.Next(); err != nil || sent > s.flows {
			return cmp.Or(err, harness.ErrInterrupted)
		}
		if s.stage == unproven {
			continue
		}
		if err := send(packet.FlagACK, next, packets); err != nil {
			return err
		}
	}
	return nil
}
