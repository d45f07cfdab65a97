// SPDX-License-Identifier: Apache-2.0

// Package daemon is a running balancer: it opens its resources on this host, puts the controller, its sources and its
// actuators together, has reloads reach all of them or none, and undoes everything at the end, or leaves it for the
// next process. It knows no command line.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/discover"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/local"
	"github.com/jeoul/jeoul/internal/balancer/metrics"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/replyhop"
	"github.com/jeoul/jeoul/internal/balancer/replyroutes"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/host/bpfhost"
	"github.com/jeoul/jeoul/internal/host/capabilities"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/neigh"
	"github.com/jeoul/jeoul/internal/host/resident"
	"github.com/jeoul/jeoul/internal/host/systemd"
)

// Options are the settings of a running balancer.
type Options struct {
	// Path is the configuration file.
	Path string
	// StateDir has the state by which another process goes on with the data plane of one that was killed, and StoreDir
	// the configuration by the API, which outlives a reboot.
	StateDir, StoreDir string
	// Version is the version of the program.
	Version string
	// Speaker is the program that speaks BGP.
	Speaker bgp.Program
	Log     *slog.Logger
	// Events has the logged events, for programs.
	Events *events.Log
}

// balancer is a balancer that is started, or runs.
type balancer struct {
	Options
	cfg        *config.Config
	sources    *sources.Sources
	listeners  listeners
	resources  resources
	member     *member // nil where the configuration has no others
	checks     *healthChecks
	discovery  *discover.Engine
	election   election
	confirmer  *replyhop.Confirmer
	routes     *replyroutes.Follower
	controller *control.Controller
	// status is the controller's with all parts in it.
	status func() (ops.Status, error)
	// services is api.Balancer's.
	services func(names []string) ([]ops.Service, error)
	metrics  *metrics.Metrics
	service  *systemd.Manager
	memory   *resident.Releaser
}

// Run balances by a configuration, which it has checked, until the context ends, or SIGUSR2 comes: then the data plane
// stays for the next process. SIGHUP has the file read again.
func Run(ctx context.Context, cfg *config.Config, opt Options) (err error) {
	resident.SetGCPercent()
	for _, lack := range bpfhost.Local().MissingFeatures() {
		if lack.Fatal {
			return errors.New(lack.String())
		}
		opt.Log.Warn(lack.String())
	}
	// From here on: before that, nothing could be read again.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	b := &balancer{Options: opt, service: systemd.New(opt.Log)}
	if b.sources, err = b.openSources(cfg); err != nil {
		return err
	}
	b.cfg = b.sources.Config()
	defer b.listeners.close()
	if err := b.listeners.open(ctx, b.cfg, b.Log); err != nil {
		return err
	}
	running, leaving := withUpgradeSignal(ctx)
	defer func() {
		b.service.Stopping()
		leave := leaving()
		err = errors.Join(err, b.resources.close(b.Log, leave), b.member.close(!leave)) // routers hear of the end first
	}()
	if err := b.start(running); err != nil {
		return err
	}
	return b.serve(running, hangup)
}

// start returns when packets are balanced.
func (b *balancer) start(ctx context.Context) error {
	err := b.resources.open(ctx, b.cfg, b.StateDir, b.Log)
	if err != nil {
		return explainRights(err)
	}
	if err := b.assemble(ctx); err != nil {
		return b.resources.addForwarding(err)
	}
	err = b.controller.Start()
	if errors.Is(err, datapath.ErrBusy) {
		err = b.cfg.At("hook", "%v", err)
	}
	if errors.Is(err, datapath.ErrSockets) {
		err = b.cfg.At(b.cfg.Local.Field(), "%v", err)
	}
	if err != nil {
		return explainRights(b.resources.addForwarding(err))
	}
	parts := b.parts()
	b.sources.Use(reloadAll(b.controller.Reload, parts), b.controller.Replace)
	wall := clock.NewWallClock(clock.Read())
	b.status = withTimestamps(wall, b.withFeeds(showAll(b.controller.Status, parts)), clock.Read)
	b.services = func(names []string) ([]ops.Service, error) {
		s, err := withTimestamps(wall, b.withFeeds(func() (s ops.Status, err error) {
			s.Services, err = b.controller.Services(names)
			return s, err
		}), clock.Read)()
		return s.Services, err
	}
	b.metrics = metrics.New(b.status, int(b.cfg.Metrics.Backends))
	b.resources.started = true
	if err := b.resources.instance.removeAliases(b.cfg.Interfaces[0]); err != nil {
		b.Log.Warn(err.Error())
	}
	if b.resources.warning != "" {
		b.Log.Warn(b.resources.warning)
	}
	return nil
}

// explainRights names the rights that a balancer needs and this process lacks.
func explainRights(err error) error {
	return capabilities.Explain(err, capabilities.BPF, capabilities.NetAdmin, capabilities.NetRaw, capabilities.Perfmon)
}

// parts returns the parts that a reload reaches beside the controller, in order.
func (b *balancer) parts() (all []part) {
	if b.member != nil {
		all = append(all, b.member)
	}
	if b.listeners.tcp != nil {
		all = append(all, b.listeners.tcp)
	}
	return append(all, b.checks)
}

// assemble makes the controller, its sources and its actuators. Nothing runs yet.
func (b *balancer) assemble(ctx context.Context) (err error) {
	r := &b.resources
	r.routers = newRouters(r.instance, routersOptions{program: b.Speaker, log: b.Log,
		established: func() { b.member.requestEarly() }, flush: func(ctx context.Context) { b.member.flush(ctx) }})
	if b.member, err = newMember(ctx, b.cfg, b.sources.Config, r.datapath, b.Version, b.Log); err != nil {
		return err
	}
	b.checks = r.checks(b.Log)
	// The discovered backends outlive the data plane: an origin may be away when the next process starts.
	b.discovery = discover.New(discover.Options{Memory: r.instance.stateFile(kindDiscovered), Log: b.Log})
	left, err := r.changes.InstalledAddresses(b.cfg.Interfaces[0])
	if err != nil {
		return err
	}
	b.election = newElection(b.cfg, left, b.Log)
	if b.confirmer, err = replyhop.New(r.datapath, b.Log); err != nil {
		return err
	}
	if b.routes, err = replyroutes.New(r.datapath, func() (names []string) {
		for _, a := range r.datapath.Attachments() {
			names = append(names, a.Interface)
		}
		return names
	}, b.Log); err != nil {
		return err
	}
	b.controller = control.New(control.Options{
		DataPlane: r.datapath, Paths: r.paths, Host: r.changes, Links: r.links, Checks: b.checks,
		Discovery: b.discovery, Announce: neigh.Announce, Log: b.Log, Version: b.Version, TakesOver: r.adopts,
		Memory: r.memory(kindOperations), Ejections: r.memory(kindEjections),
		Routes: r.routers, Drained: r.instance.stateFile(kindDrained), Election: b.election,
		Joined: b.member.ready(), RequestEarly: b.member.requestEarly,
		Identity: identity{r.instance}, Cgroup: local.Cgroup, Proxy: r.proxy, Files: r.instance.files,
		ReplyHops: b.confirmer,
	}, b.cfg)
	return nil
}

// serve runs all that a balancer consists of until the context ends.
func (b *balancer) serve(ctx context.Context, hangup <-chan os.Signal) error {
	b.memory = resident.NewReleaser()
	reloads := &reloader{b.sources, b.metrics, b.service, b.memory, b.resources.instance.files, b.Log}
	b.service.Ready()
	b.memory.Changed()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { b.memory.Run(ctx, func(err error) { b.Log.Warn(err.Error()) }); return nil })
	group.Go(func() error { b.resources.routers.keeper.Run(ctx); return nil })
	// Members and the controller go on until others serve the packets.
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer func() { end(context.Cause(ctx)) }()
		return runElection(ctx, b.election, b.resources.routers, b.member, b.resources.store != nil)
	})
	group.Go(func() error { return b.controller.Run(serving) })
	group.Go(func() error { b.confirmer.Run(ctx); return nil })
	group.Go(func() error { b.routes.Run(ctx); return nil })
	group.Go(func() error { return b.member.run(serving, b.controller.Drained) })
	group.Go(func() error { return b.checks.run(ctx) })
	group.Go(func() error { b.discovery.Run(ctx); return nil })
	if scrapes := b.listeners.metrics; scrapes != nil {
		b.Log.Info(fmt.Sprintf("answering scrapes at http://%s%s", scrapes.Addr(), metrics.Path))
		group.Go(func() error { return b.metrics.Serve(ctx, scrapes) })
	}
	answers := b.apiBalancer(ctx, reloads)
	group.Go(func() error {
		return serveSocket(ctx, b.listeners.socket, b.listeners.socketErr, b.cfg.Socket, answers,
			b.resources.instance.files, b.Log)
	})
	if tcp := b.listeners.tcp; tcp != nil {
		b.Log.Info(fmt.Sprintf("answering the API at https://%s", tcp.listener.Addr()))
		group.Go(func() error { return tcp.serve(ctx, answers) })
	}
	group.Go(func() error { reloads.onSignal(ctx, hangup); return nil })
	group.Go(func() error { return b.service.RunWatchdog(ctx, b.controller.Responds) })
	return group.Wait()
}

// apiBalancer returns the balancer as the API sees it; reloads end with the context.
func (b *balancer) apiBalancer(ctx context.Context, reloads *reloader) api.Balancer {
	c, plane := b.controller, b.resources.datapath
	return api.Balancer{
		Status: b.status, Services: b.services, ServicesIn: c.ServicesIn,
		Operate: c.Operate, Drain: b.drain, Operations: c.Operations,
		Flows: c.Flows, Check: c.Check,
		Reload:  func(by string) (ops.Reloaded, error) { return reloads.reload(ctx, by) },
		Explain: plane.Explain, Trace: loggedTrace(plane, b.Log), Capture: loggedCapture(plane, b.status, b.Log),
		Metrics: b.metrics.Handler(), Events: b.Events, Sources: b.sources, Configured: b.logChange,
		Denied: (&denials{metrics: b.metrics, log: b.Log}).note, Version: b.Version,
	}
}

// drain takes the balancer out of every anycast, or brings it back. Members know of the last flows before a drain moves
// packets to them.
func (b *balancer) drain(ctx context.Context, drain bool, by string) (ops.Sharing, error) {
	if drain {
		b.member.flush(ctx)
	}
	return b.controller.Drain(ctx, drain, by)
}

// logChange logs a change of a source other than the file.
func (b *balancer) logChange(change sources.Change, by string) {
	b.memory.Changed()
	b.Log.Info("configured", "source", change.Source, "generation", change.Generation, "by", by,
		events.About{Kind: events.KindConfiguration, By: by}.Attr())
}

// openSources opens the file, and the stored configuration of the API and of other programs.
func (b *balancer) openSources(cfg *config.Config) (*sources.Sources, error) {
	previous, err := PreviousSources(cfg.Interfaces[0], b.StateDir)
	if err != nil {
		return nil, err
	}
	dir, err := sources.DirectoryOf(b.StoreDir, b.Path)
	if err != nil {
		return nil, err
	}
	moved, err := sources.Move(previous, dir)
	if err != nil {
		return nil, err
	}
	if len(moved) > 0 {
		b.Log.Info("moved what the API has configured to where it outlives a reboot",
			"sources", strings.Join(moved, ", "), "from", previous, "to", dir)
	}
	return sources.Open(b.Path, dir)
}

// withUpgradeSignal returns a context that ends with the other or by the signal by which another process is to go on
// (SIGUSR2), and a function that says, once it has ended or is no more needed, whether that signal has come. Of two
// signals it counts: a service manager sends its own besides.
func withUpgradeSignal(ctx context.Context) (running context.Context, leaving func() bool) {
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGUSR2)
	running, cancel := context.WithCancelCause(ctx)
	decided := make(chan bool, 1)
	go func() {
		select {
		case <-leave:
			cancel(control.ErrLeaving)
			decided <- true
		case <-running.Done():
			decided <- false
		}
	}()
	return running, func() bool {
		signal.Stop(leave)
		cancel(nil)
		return <-decided || len(leave) > 0
	}
}
