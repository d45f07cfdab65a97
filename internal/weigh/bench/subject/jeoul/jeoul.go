// SPDX-License-Identifier: Apache-2.0

package jeoul

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
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// statusTask reads the status of jeoul's daemon on a host, at its socket.
var statusTask = lab.NewTask("jeoul-status",
	func(ctx context.Context, _ *lab.Host, socket string) (*ops.Status, error) {
		return api.NewClient(socket).Status(ctx)
	})

// jeoul is our own balancer as users run it: the daemon on the balancer, and the part of its mode on the servers, which
// is the agent or their route back.
type jeoul struct {
	mode lb.Mode
	hook lb.Hook
}

func (s jeoul) Name() string { return "jeoul-" + string(s.mode) + "-" + string(s.hook) }

func (jeoul) Params() []subject.Param {
	var schedulers []string
	for _, scheduler := range lb.Schedulers {
		schedulers = append(schedulers, string(scheduler))
	}
	return []subject.Param{{Name: subject.ParamScheduler, Check: subject.OneOf(schedulers...)}}
}

func (s jeoul) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Packets: true, Changes: true, Restarts: true, Upgrades: true,
		DirectReplies: s.mode != lb.NAT && s.mode != lb.FullNAT,
		Machines:      s.onMachines, Containers: s.besideContainers, Others: s.besideOthers}
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

// Versions returns none: the version of this jeoul is that of the run itself.
func (jeoul) Versions(context.Context) (map[string]string, error) { return nil, nil }

// SkipReason returns none: jeoul forwards packets, and needs no file descriptors for connections.
func (jeoul) SkipReason(subject.Params, int, probe.Limits) string { return "" }

// unprovenShare is the default ratio of the room for proven flows to that for unproven flows (see
// docs/internals/state.md).
const unprovenShare = 4

func (s jeoul) config(setup subject.Setup, params subject.Params, socket string) *config.Config {
	file := config.New()
	file.Interfaces, file.Hook, file.Socket = []string{setup.Balancer().Interface}, s.hook, socket
	if setup.Lab.Containers() {
		file.Interfaces = append(file.Interfaces, setup.Balancer().Bridge)
	}
	if setup.Local {
		file.Local = config.Local{On: true, Cgroup: setup.Balancer().Cgroup}
	}
	if s.mode == lb.FullNAT {
		file.FullNAT.Addresses = addresses(setup)
	}
	if setup.Lab.Router != nil {
		announce(file, setup)
	}
	scheduler, _ := params[subject.ParamScheduler].(string)
	if setup.Flows > 0 && (lb.Scheduler(scheduler).Remembers() || s.mode == lb.FullNAT) {
		file.Flows.Limit, file.Flows.Unproven = uint32(setup.Flows), uint32(setup.Flows/unprovenShare)
	}
	for i, of := range setup.Services {
		for _, protocol := range of.Protocols() {
			service := lb.Service{Name: serviceName(i, protocol), VIP: setup.Lab.VIP4, Port: of.Port,
				Protocol: protocol,
				Mode:     s.mode, NoHairpin: s.mode == lb.NAT, // all hosts of a laboratory are on one link
				Scheduler: lb.Scheduler(scheduler), Checks: checks(of.Check, protocol)}
			if s.mode == lb.DSCP {
				service.DSCP = subject.DSCPPoint
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

// checks returns the settings for a check by our own balancer: by the method that is usual in the mode, and with the
// default fate of a failing backend's flows.
func checks(c *subject.Check, protocol lb.Protocol) lb.Checks {
	if c == nil {
		return lb.Checks{}
	}
	return lb.Checks{Panic: lb.DefaultPanic, OnDown: lb.DefaultOnDown(protocol), List: []lb.Check{{
		Type: lb.CheckHTTP, Port: c.Port, Interval: c.Interval, Timeout: c.Timeout, Fall: uint16(c.Fall),
		Rise: uint16(c.Rise),
		HTTP: &lb.HTTPCheck{Method: lb.DefaultCheckMethod, Path: lb.DefaultCheckPath},
	}}}
}

// serviceName returns the name of service number i (from 0) for a protocol.
func serviceName(i int, protocol lb.Protocol) string {
	if protocol == lb.TCP {
		return fmt.Sprintf("service%d", i)
	}
	return fmt.Sprintf("service%d-%s", i, protocol)
}

func (s jeoul) start(ctx context.Context, running *runningJeoul) error {
	if l := running.setup.Lab; running.setup.Local && running.setup.Balancer().Cgroup == "" {
		return fmt.Errorf("%w: programs on %s are not in a cgroup of their own: %s", subject.ErrNotUp, l.Balancer.Name,
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

// begin starts the daemon, and returns when the daemon is ready.
func (s jeoul) begin(ctx context.Context, running *runningJeoul) (err error) {
	balancer := running.setup.Balancer()
	running.process, err = subject.StartWithLog(ctx, balancer, running.reloads.line, running.executable(), "run", "-c",
		running.path(),
		"--state-dir", filepath.Join(balancer.Dir, "state"))
	if err != nil {
		return err
	}
	running.client = api.NewClient(running.socket())
	return running.process.WaitUntil(ctx, func() error {
		status, err := running.status(ctx)
		if err != nil {
			return err
		}
		running.hook = status.Hook
		return s.ready(status, running.setup.Services)
	})
}

// configure writes the daemon's configuration.
func (r *runningJeoul) configure(setup subject.Setup) error {
	file := r.subject.config(setup, r.params, r.socket())
	var text []byte
	var err error
	if r.editConfig != nil {
		err = r.editConfig(file, setup)
	}
	if err == nil {
		text, err = config.Write(file)
	}
	if err == nil {
		err = setup.Balancer().WriteFile(r.path(), text)
	}
	if err != nil {
		return fmt.Errorf("writing jeoul's configuration: %w", err)
	}
	return nil
}

// status reads the daemon's status, on whatever host it runs.
func (r *runningJeoul) status(ctx context.Context) (*ops.Status, error) {
	return statusTask.On(ctx, r.setup.Balancer(), r.socket())
}

func (r *runningJeoul) path() string   { return filepath.Join(r.setup.Balancer().Dir, "jeoul.yaml") }
func (r *runningJeoul) socket() string { return filepath.Join(r.setup.Balancer().Dir, "jeoul.sock") }

// prepare sets the laboratory up for the mode and the hook.
func (s jeoul) prepare(running *runningJeoul) (err error) {
	l := running.setup.Lab
	if l.Router != nil {
		return nil // once for all balancers: see runningSeveral.start
	}
	if s.hook == lb.HookXDP {
		if err := running.undo.On(l.AcceptXDP); err != nil {
			return err
		}
	}
	switch s.mode {
	case lb.NAT:
		// The daemon itself makes its host forward packets that it passes to the kernel.
		return running.undo.On(l.DetourReplies)
	case lb.FullNAT, lb.ModeProxy:
		return nil
	}
	running.vips, err = subject.HoldVIP(l, s.mode)
	return err
}

// ready returns nil if status shows the requested hook and every backend of every service up, with a MAC address.
func (s jeoul) ready(status *ops.Status, services []subject.Service) error {
	if status.Hook.Name != s.hook {
		return fmt.Errorf("its hook is %q, not %q", status.Hook.Name, s.hook)
	}
	var want []subject.Service // one for each port
	for _, service := range services {
		for range service.Protocols() {
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

// allUp returns nil if a service has all wanted backends and all of them are up.
func allUp(service ops.Service, want subject.Service) error {
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
	setup   subject.Setup
	params  subject.Params
	process *subject.Program
	vips    subject.VIPHolders
	undo    subject.Undo
	client  *api.Client
	hook    ops.Hook
	reloads reloads
	// editConfig changes the configuration; nil for no change.
	editConfig func(*config.Config, subject.Setup) error
	// upgraded means that the other build runs, or is about to run.
	upgraded bool
	// speakerPID is the last known process that speaks BGP, and speakerSuspended means that it was suspended.
	speakerPID       int
	speakerSuspended bool
	// weights are the original weights of the file.
	weights map[string]int
}

func (r *runningJeoul) Target(i int) netip.AddrPort { return r.setup.VIP(i) }

func (r *runningJeoul) Cores() float64 { return 0 }

func (r *runningJeoul) Notes() []string {
	hook := string(r.hook.Name)
	if r.hook.Generic {
		hook += " (generic)"
	}
	notes := []string{strings.TrimSpace(fmt.Sprintf("the hook in use was %s on driver %s %s", hook, r.hook.Driver,
		r.hook.Reason))}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
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

// socketsNote describes the fate of the sockets of programs on the balancer's host.
func socketsNote(events []ops.LocalEvent) string {
	words := []string{}
	for _, event := range events {
		if event.Count > 0 {
			words = append(words, fmt.Sprintf("%s %d", event.Name, event.Count))
		}
	}
	return "its host's sockets, trial transfers included: " + cmp.Or(strings.Join(words, ", "), "none")
}

// statusTimeout is how long the daemon may take to return its counters.
const statusTimeout = time.Second

// outcomeNote describes the fate of the packets for the services, without those that the balancer passed to the kernel
// (ARP and the like).
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

// Quiesce does nothing: the connections are between clients and servers, and need the balancer for their last packets.
func (r *runningJeoul) Quiesce(context.Context) error { return nil }

func (r *runningJeoul) Stop(ctx context.Context) error {
	return errors.Join(r.process.Stop(ctx), r.undo.All(), r.vips.Release())
}

// Remembered counts the flows in the balancer's tables. The daemon takes some seconds to walk over its tables. It
// counts active flows when they are opened, so their number is more recent while many flows are opened.
func (r *runningJeoul) Remembered(ctx context.Context) (subject.Remembered, error) {
	status, err := r.client.Status(ctx)
	if err != nil {
		return subject.Remembered{}, err
	}
	all := subject.Remembered{What: "flows in jeoul's tables, as its status has them"}
	if f := status.Flows; f != nil {
		all.Flows, all.Limit, all.Bytes = f.Proven+f.Unproven, f.ProvenLimit+f.UnprovenLimit, f.Bytes
	}
	var active uint64
	for _, service := range status.Services {
		active += uint64(service.Active)
	}
	all.Flows = max(all.Flows, active)
	return all, nil
}

// executable returns the path of the build to run.
func (r *runningJeoul) executable() string {
	if r.upgraded {
		return r.setup.Other
	}
	return r.setup.Balancer().Executable(r.setup.Executable)
}
