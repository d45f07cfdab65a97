// SPDX-License-Identifier: Apache-2.0

// Package memory measures the kernel memory of stored flows. It opens and proves the flows in the data plane itself,
// through BPF_PROG_TEST_RUN, and counts them in the kernel's tables.
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

// Options set how much is measured.
type Options struct {
	// Flows are the numbers of stored flows, with one case for each.
	Flows []uint32
	// Progress is called before each case, if set.
	Progress func(what string)
	// settled is harness.Settled; tests replace it, as they need not wait until the machine is idle.
	settled func(context.Context) (uint64, error)
}

// load is the name of the load in the results.
const load = "memory"

// The measured subject: in TC the kernel needs no time to begin and to end a run.
const (
	hook    = lb.HookTC
	subject = "jeoul-l2dsr-tc"
)

// ErrFlows means that one of Options.Flows is out of range.
var ErrFlows = errors.New("the number of flows must be from 1 to 100 million")

// maxFlows is a number of flows for which a machine of moderate size has memory.
const maxFlows = 100_000_000

// stage is the state of the flows.
type stage string

const (
	// proven flows have sent a packet beyond the SYN.
	proven stage = "proven"
	// unproven flows have sent a SYN only.
	unproven stage = "unproven"
)

// benchCase is a case: the flows of a service that are stored.
type benchCase struct {
	scheduler lb.Scheduler
	ipv6      bool
	stage     stage
	flows     uint32
}

// cases returns all cases: with a scheduler that stores every flow, and with one that stores none.
func cases(flows []uint32) []benchCase {
	var list []benchCase
	for _, n := range flows {
		for _, ipv6 := range []bool{false, true} {
			list = append(list,
				benchCase{lb.RoundRobin, ipv6, proven, n},
				benchCase{lb.RoundRobin, ipv6, unproven, n},
				benchCase{lb.Maglev, ipv6, proven, n})
		}
	}
	return list
}

func (s benchCase) params() map[string]any {
	family := "ipv4"
	if s.ipv6 {
		family = "ipv6"
	}
	return map[string]any{"scheduler": string(s.scheduler), "family": family, "stage": string(s.stage),
		"flows": s.flows}
}

// Measure measures every case. If it fails or ctx ends, it also returns the trials until then. Errors: ErrFlows,
// datapath.ErrNoRights, the error of ctx.
func Measure(ctx context.Context, options Options) (trials []results.Trial, err error) {
	for _, n := range options.Flows {
		if n < 1 || n > maxFlows {
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
			// If a signal interrupted the run, more flows were sent than requested.
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

func (s benchCase) addresses() (client netip.Addr, vip netip.AddrPort, backend netip.Addr) {
	if s.ipv6 {
		return harness.Client6, netip.AddrPortFrom(harness.VIP6(1), 80), backend6
	}
	return harness.Client4, netip.AddrPortFrom(harness.VIP4(1), 80), backend4
}

// room returns the capacity of the balancer's tables: the number of flows of the case for its stage, and the default
// for the other.
func (s benchCase) room() harness.Room {
	switch {
	case !s.scheduler.Remembers():
		return harness.Room{}
	case s.stage == proven:
		return harness.Room{Flows: s.flows}
	}
	return harness.Room{Unproven: s.flows}
}

// measure opens the flows of a case in a new balancer; settled returns the memory that the machine has available.
func (s benchCase) measure(ctx context.Context, h *harness.Harness,
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
	before, err := readTables(balancer)
	if err != nil {
		return nil, err
	}
	if err := s.open(h, balancer); err != nil {
		return nil, err
	}
	after, err := readTables(balancer)
	if err != nil {
		return nil, err
	}
	full, err := settled(ctx)
	if err != nil {
		return nil, err
	}
	return s.metrics(before, after, bare-full), nil
}

// tableUse has the memory and the flows of a balancer's tables.
type tableUse struct {
	// bytes is the memory of each stage's table, all that of all maps.
	bytes map[stage]uint64
	all   uint64
	flows uint64
}

// tables maps the kernel's names of the tables to stages.
var tables = map[string]stage{"flows": proven, "newcomers": unproven}

// readTables reads a balancer's tables.
func readTables(balancer *datapath.Datapath) (tableUse, error) {
	t := tableUse{bytes: map[stage]uint64{}}
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

// metrics returns the memory of a case's flows.
func (s benchCase) metrics(before, after tableUse, gone uint64) map[string]float64 {
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

// step is the number of flows that are opened before they are proven. It is small enough for the table of unproven
// flows.
const step = 1 << 16

// open opens the flows of a case, and proves them if the case needs proven flows. Errors: harness.ErrInterrupted, if
// more flows were opened at the end than requested. More flows in between do no harm: they are opened again, and are
// not proven before.
func (s benchCase) open(h *harness.Harness, balancer *datapath.Datapath) error {
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
