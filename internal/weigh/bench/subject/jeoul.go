// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// jeoul is our own balancer as a user runs it: the daemon on the balancer, and
// what its mode needs of the servers: the agent, or their way back.
type jeoul struct {
	mode lb.Mode
	hook lb.Hook
}

const paramScheduler = "scheduler"

func (s jeoul) Name() string { return "jeoul-" + string(s.mode) + "-" + string(s.hook) }

func (jeoul) HTTPOnly() bool { return false }

func (jeoul) Params() []Param {
	var schedulers []string
	for _, scheduler := range lb.Schedulers {
		schedulers = append(schedulers, string(scheduler))
	}
	return []Param{{Name: paramScheduler, Check: oneOf(schedulers...)}}
}

func (s jeoul) can() abilities {
	return abilities{udp: true, packets: true, changes: true, restarts: true, upgrades: true,
		machines: s.onMachines, containers: s.besideContainers, others: s.besideOthers}
}

func (s jeoul) onMachines(l *lab.Lab) string {
	if s.mode == lb.FullNAT && !l.FullNAT.IsValid() {
		return "full NAT needs a free address of the machines' segment to send from: give jeoul_fullnat_address in the inventory"
	}
	return ""
}

func (s jeoul) besideOthers() string {
	if s.mode == lb.NAT {
		return "replies find their way to the one balancer that translated the request in fullnat only"
	}
	return ""
}

func (s jeoul) besideContainers(local bool) string {
	switch {
	case s.mode != lb.NAT && s.mode != lb.FullNAT:
		return "its servers have the VIP, or undo a tunnel, on the balancer's segment; of ours use nat or fullnat"
	case s.hook != lb.HookTC:
		return "a bridge has no XDP of its own; use the hook tc"
	case local && s.mode != lb.NAT:
		return "to programs on the host of a balancer of ours all modes are one; use nat"
	}
	return ""
}

// Versions is empty: the run itself is by this jeoul.
func (jeoul) Versions(context.Context) (map[string]string, error) { return nil, nil }

// Obstacle is none: it forwards packets, and needs no descriptor a connection.
func (jeoul) Obstacle(Params, int, probe.Limits) string { return "" }

// unprovenShare is how many proven flows there is room for for each that is not: the usual
// (see docs/internals/state.md).
const unprovenShare = 4

func (s jeoul) config(setup Setup, params Params, socket string) *config.Config {
	file := config.New()
	file.Interfaces, file.Hook, file.Socket = []string{setup.balancer().Interface}, s.hook, socket
	if setup.Lab.Containers() {
		file.Interfaces = append(file.Interfaces, setup.balancer().Bridge)
	}
	if setup.Local {
		file.Local = config.Local{On: true, Cgroup: setup.balancer().Cgroup}
	}
	if s.mode == lb.FullNAT {
		file.FullNAT.Addresses = setup.pool()
	}
	if setup.Lab.Router != nil {
		setup.announce(file)
	}
	scheduler, _ := params[paramScheduler].(string)
	if setup.Flows > 0 && (lb.Scheduler(scheduler).Remembers() || s.mode == lb.FullNAT) {
		file.Flows.Limit, file.Flows.Unproven = uint32(setup.Flows), uint32(setup.Flows/unprovenShare)
	}
	for i, of := range setup.Services {
		for _, protocol := range of.protocols() {
			service := lb.Service{Name: serviceName(i, protocol), VIP: setup.Lab.VIP4, Port: of.Port,
				Protocol: protocol,
				Mode:     s.mode, NoHairpin: s.mode == lb.NAT, // all hosts of a laboratory are on one link
				Scheduler: lb.Scheduler(scheduler), Checks: of.Check.jeoul(protocol)}
			if s.mode == lb.DSCP {
				service.DSCP = dscpPoint
			}
			for _, server := range of.Servers {
				service.Backends = append(service.Backends, lb.Backend{
					Name: server.Name, Address: server.IPv4, Port: of.Port, Weight: uint16(of.Weight(server))})
			}
			file.Services = append(file.Services, service)
		}
	}
	return file
}

// jeoul is the check as our own balancer makes it: by the way that is usual in the mode, and with the usual fate of
// a failing backend's flows.
func (c *Check) jeoul(protocol lb.Protocol) lb.Checks {
	if c == nil {
		return lb.Checks{}
	}
	return lb.Checks{Panic: lb.DefaultPanic, OnDown: lb.UsualOnDown(protocol), List: []lb.Check{{
		Type: lb.CheckHTTP, Port: c.Port, Interval: c.Interval, Timeout: c.Timeout, Fall: uint16(c.Fall),
		Rise: uint16(c.Rise),
		HTTP: &lb.HTTPCheck{Method: lb.DefaultCheckMethod, Path: lb.DefaultCheckPath},
	}}}
}

// serviceName is the name of service number i (from 0) for a protocol.
func serviceName(i int, protocol lb.Protocol) string {
	if protocol == lb.TCP {
		return fmt.Sprintf("service%d", i)
	}
	return fmt.Sprintf("service%d-%s", i, protocol)
}

func (s jeoul) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	if setup.Lab.Router != nil && setup.at == nil {
		return s.startSeveral(ctx, setup, params)
	}
	running := &runningJeoul{subject: s, setup: setup, params: params, weights: setup.Services[0].Weights}
	if err := s.start(ctx, running); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

func (s jeoul) start(ctx context.Context, running *runningJeoul) error {
	if l := running.setup.Lab; running.setup.Local && running.setup.balancer().Cgroup == "" {
		return fmt.Errorf("%w: programs on %s are not in a cgroup of their own: %s", ErrNotUp, l.Balancer.Name,
			strings.Join(l.Notes, "; "))
	}
	if err := running.configure(running.setup); err != nil {
		return err
	}
	if err := s.prepare(running); err != nil {
		return err
	}
	return s.begin(ctx, running)
}

// begin starts the daemon, and returns when it is ready.
func (s jeoul) begin(ctx context.Context, running *runningJeoul) (err error) {
	balancer := running.setup.balancer()
	running.process, err = startHeard(ctx, balancer, running.told.line, running.executable(), "run", "-c",
		running.path(),
		"--state-dir", filepath.Join(balancer.Dir, "state"))
	if err != nil {
		return err
	}
	running.client = api.NewClient(running.socket())
	return running.process.waitUntil(ctx, func() error {
		status, err := running.status(ctx)
		if err != nil {
			return err
		}
		running.hook = status.Hook
		return s.ready(status, running.setup.Services)
	})
}

// configure writes the daemon's configuration.
func (r *runningJeoul) configure(setup Setup) error {
	file := r.subject.config(setup, r.params, r.socket())
	var text []byte
	var err error
	if r.hand != nil {
		err = r.hand(file, setup)
	}
	if err == nil {
		text, err = config.Write(file)
	}
	if err == nil {
		err = setup.balancer().WriteFile(r.path(), text)
	}
	if err != nil {
		return fmt.Errorf("writing jeoul's configuration: %w", err)
	}
	return nil
}

// status asks the daemon, wherever it is.
func (r *runningJeoul) status(ctx context.Context) (*ops.Status, error) {
	return statusTask.On(ctx, r.setup.balancer(), r.socket())
}

func (r *runningJeoul) path() string   { return filepath.Join(r.setup.balancer().Dir, "jeoul.yaml") }
func (r *runningJeoul) socket() string { return filepath.Join(r.setup.balancer().Dir, "jeoul.sock") }

// prepare makes the laboratory ready for the mode and the hook.
func (s jeoul) prepare(running *runningJeoul) (err error) {
	l := running.setup.Lab
	if l.Router != nil {
		return nil // once for all balancers: see runningSeveral.start
	}
	if s.hook == lb.HookXDP {
		if err := running.undo.on(l.AcceptXDP); err != nil {
			return err
		}
	}
	switch s.mode {
	case lb.NAT:
		// The daemon itself makes its host forward what it leaves to the kernel.
		return running.undo.on(l.DetourReplies)
	case lb.FullNAT, lb.ModeProxy:
		return nil
	}
	running.vips, err = holdVIP(l, s.mode)
	return err
}

// ready returns nil if status shows the hook that was asked for and every
// backend of every service up, with a MAC address.
func (s jeoul) ready(status *ops.Status, services []Service) error {
	if status.Hook.Name != s.hook {
		return fmt.Errorf("its hook is %q, not %q", status.Hook.Name, s.hook)
	}
	var want []Service // of each port
	for _, service := range services {
		for range service.protocols() {
			want = append(want, service)
		}
	}
	if len(status.Services) != len(want) {
		return fmt.Errorf("it shows %d services, not %d", len(status.Services), len(want))
	}
	for i, service := range status.Services {
		if err := allUp(service, want[i]); err != nil {
			return err
		}
	}
	return nil
}

// allUp returns nil if every backend that a service shall have is there and can
// be reached.
func allUp(service ops.Service, want Service) error {
	if len(service.Backends) != len(want.Servers) {
		return fmt.Errorf("it shows %d backends of %s, not %d", len(service.Backends), service.Name, len(want.Servers))
	}
	for i, backend := range service.Backends {
		if drains := want.Weight(want.Servers[i]) == 0; drains {
			continue
		}
		if backend.State != lb.Up || backend.MAC == "" && service.Mode != lb.ModeProxy {
			return fmt.Errorf("backend %s is %s", backend.Name, backend.State)
		}
	}
	return nil
}

type runningJeoul struct {
	subject jeoul
	setup   Setup
	params  Params
	process *program
	vips    vipHolders
	undo    undo
	client  *api.Client
	hook    ops.Hook
	told    reloads
	// hand changes what is configured; nil where nothing is to be.
	hand func(*config.Config, Setup) error
	// upgraded: the other build runs, or is to.
	upgraded bool
	// spoke is the process that spoke BGP when it was asked for last, and hung says that it was stopped.
	spoke int
	hung  bool
	// weights are those that the file began with.
	weights map[string]int
}

func (r *runningJeoul) Target(i int) netip.AddrPort { return r.setup.vip(i) }

func (r *runningJeoul) Cores() float64 { return 0 }

func (r *runningJeoul) Notes() []string {
	hook := string(r.hook.Name)
	if r.hook.Generic {
		hook += " (generic)"
	}
	notes := []string{strings.TrimSpace(fmt.Sprintf("the hook in use was %s on driver %s %s", hook, r.hook.Driver,
		r.hook.Reason))}
	ctx, cancel := context.WithTimeout(context.Background(), statusBound)
	defer cancel()
	status, err := r.status(ctx)
	if err != nil {
		return append(notes, fmt.Sprintf("what became of its packets is not known: %v", err))
	}
	if status.Local != nil {
		notes = append(notes, socketsNote(status.Local.Events))
	}
	return append(notes, outcomeNote(status.Outcomes))
}

// socketsNote says what became of the sockets of programs on the balancer's host.
func socketsNote(events []ops.LocalEvent) string {
	words := []string{}
	for _, event := range events {
		if event.Count > 0 {
			words = append(words, fmt.Sprintf("%s %d", event.Name, event.Count))
		}
	}
	return "its host's sockets, trial transfers included: " + cmp.Or(strings.Join(words, ", "), "none")
}

// statusBound is how long the daemon may take to tell its counters.
const statusBound = time.Second

// outcomeNote says what became of the packets that were for the services, and
// leaves out what the balancer let the kernel have (ARP and the like).
func outcomeNote(outcomes []ops.Outcome) string {
	var words []string
	for _, outcome := range outcomes {
		others := strings.HasPrefix(outcome.Name, "passed_") && outcome.Name != "passed_to_route"
		if outcome.Packets > 0 && !others {
			words = append(words, fmt.Sprintf("%s %d", outcome.Name, outcome.Packets))
		}
	}
	return "its packets, trial transfers included: " + cmp.Or(strings.Join(words, ", "), "none")
}

// Quiesce has nothing to end: the connections are between clients and servers,
// and need the balancer for their last packets.
func (r *runningJeoul) Quiesce(context.Context) error { return nil }

func (r *runningJeoul) Stop(ctx context.Context) error {
	return errors.Join(r.process.stop(ctx), r.undo.all(), r.vips.release())
}
