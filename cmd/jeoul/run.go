// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/local"
	"github.com/jeoul/jeoul/internal/balancer/metrics"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	backendpaths "github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/balancer/replyhop"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/host/neigh"
	"github.com/jeoul/jeoul/internal/host/resident"
)

type runCmd struct {
	Config   string `name:"config" short:"c" required:"" type:"path" placeholder:"FILE" help:"Configuration in YAML."`
	Check    bool   `name:"check" help:"Check the file and exit; needs no rights and changes nothing."`
	StateDir string `name:"state-dir" default:"/run/jeoul" type:"path" placeholder:"DIR" help:"Where changes to the network settings are noted, and what another process needs to go on with the data plane of one that was killed (${default})."`
	StoreDir string `name:"store-dir" default:"${storeDir}" type:"path" placeholder:"DIR" help:"Where what the API has configured is kept, in a directory for each configuration file; it outlives a reboot (${default})."`
}

// Help says how it ends.
func (runCmd) Help() string {
	return `Runs until SIGINT or SIGTERM. SIGHUP reads the file again. SIGUSR2 ends the process and leaves its data plane, which the
next start goes on with.`
}

// Run balances until the context ends.
func (c *runCmd) Run(ctx context.Context) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	if c.Check {
		if err := checkProxied(ctx, cfg); err != nil {
			return err
		}
		describe(cfg)
		return nil
	}
	happened := events.NewLog(events.Kept, time.Now())
	return c.balance(ctx, cfg, slog.New(happened.Handler(newLogger(os.Stderr).Handler())), happened)
}

// warn prints a checked file's warnings.
func warn(cfg *config.Config) {
	for _, warning := range cfg.Warnings {
		fmt.Fprintf(os.Stderr, "jeoul: warning: %s\n", warning)
	}
}

// describe says what a checked file holds.
func describe(cfg *config.Config) {
	warn(cfg)
	backends := 0
	for _, s := range cfg.Services {
		backends += len(s.Backends)
	}
	fmt.Printf("%s: correct: %s %s, services: %d, backends: %d\n",
		cfg.File, cfg.InterfaceField(), strings.Join(cfg.Interfaces, ", "), len(cfg.Services), backends)
	for _, s := range cfg.Services {
		if s.Mode == lb.DSCP {
			fmt.Printf("%s: DSCP %d stands for %s\n", s.Name, s.DSCP, s.VIP)
		}
	}
}

// newLogger writes lines for a person; in colour on a terminal.
func newLogger(to *os.File) *slog.Logger {
	return slog.New(tint.NewTextHandler(to, &tint.Options{TimeFormat: time.DateTime, NoColor: !terminal(to)}))
}

// terminal says whether a person reads what is written to a file.
func terminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// parts are what a balancer is made of, in the order in which they are opened.
type parts struct {
	instance instance
	// takesOver: another process has left the data plane and the network changes.
	takesOver bool
	// started: what was taken over is this process's to take back.
	started bool
	// store is nil where nothing outlives the process.
	store *pins.Store
	// warning says what of that is not to be had; it is logged when the balancer has started.
	warning  string
	datapath *datapath.Datapath
	changes  *hostnet.Changes
	links    *iface.Interfaces
	paths    *backendpaths.Paths
	proxy    proxy.Engine
	// routers are told of the VIPs; the speaker is there only where the configuration has some.
	routers routers
}

// balance runs the daemon.
func (c *runCmd) balance(ctx context.Context, cfg *config.Config, log *slog.Logger, happened *events.Log) (err error) {
	resident.Daemon()
	// From here on: before that, nothing could be read again.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	configured, err := c.sources(cfg, log)
	if err != nil {
		return err
	}
	cfg = configured.Config()
	// First, for it says at once whether another balancer runs.
	listener, unheard := api.Listen(ctx, cfg.Socket)
	if unheard != nil && !durable.Unwritable(unheard) {
		return unheard
	}
	if listener != nil {
		defer listener.Close()
	}
	scrapes, err := listenForScrapes(ctx, cfg)
	if err != nil {
		return err
	}
	if scrapes != nil {
		defer scrapes.Close()
	}
	remote, err := listenOverTCP(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer remote.close()
	running, leaving := untilLeaving(ctx)
	var p parts
	var member *memberOf
	defer func() {
		notify(log, daemon.SdNotifyStopping)
		leave := leaving()
		err = errors.Join(err, p.close(log, leave), member.close(!leave)) // routers hear of the end first
	}()
	if err := p.open(running, cfg, c.StateDir, log); err != nil {
		return withCapabilities(err, balancerCapabilities)
	}
	p.routers = newRouters(p.instance, log, func() { member.hasten() })
	version, _ := build()
	member, err = newMember(running, cfg, configured.Config, p.datapath, version, log)
	if err != nil {
		return p.goesOn(err)
	}
	checks, discovery := p.checks(log), p.discovery(log)
	left, err := p.changes.Held(cfg.Interfaces[0])
	if err != nil {
		return p.goesOn(err)
	}
	shared := newElection(cfg, left, log)
	confirmer, err := replyhop.New(p.datapath, log)
	if err != nil {
		return p.goesOn(err)
	}
	controller := control.New(control.Options{
		DataPlane: p.datapath, Paths: p.paths, Host: p.changes, Links: p.links, Checks: checks, Discovery: discovery,
		Announce: neigh.Announce, Log: log, Version: version, TakesOver: p.takesOver, Memory: p.memory(kindOperations), Ejections: p.memory(kindEjections),
		Routes: telling{p.routers, member}, Drained: p.instance.noted(kindDrained), Election: shared, Joined: member.awaited(), Hasten: member.hasten,
		Identity: identity{p.instance}, Cgroup: local.Cgroup, Proxy: p.proxy, Files: p.instance.files,
		ReplyHops: confirmer,
	}, cfg)
	err = controller.Start()
	if errors.Is(err, datapath.ErrBusy) {
		err = cfg.At("hook", "%v", err)
	}
	if errors.Is(err, datapath.ErrSockets) {
		err = cfg.At(cfg.Local.Field(), "%v", err)
	}
	if err != nil {
		return withCapabilities(p.goesOn(err), balancerCapabilities)
	}
	configured.Use(member.reloading(remote.reloading(controller.Reload)), controller.Replace)
	status := member.status(controller.Status)
	shown := metrics.New(status, int(cfg.Metrics.Backends))
	p.started = true
	if err := p.instance.forgetAliases(cfg.Interfaces[0]); err != nil {
		log.Warn(err.Error())
	}
	if p.warning != "" {
		log.Warn(p.warning)
	}
	service := newServiceManager(log)
	memory := resident.NewKeeper()
	reloads := &reloader{configured, shown, service, memory, p.instance.files, log}
	service.ready()
	memory.Changed()
	group, ctx := errgroup.WithContext(running)
	group.Go(func() error { memory.Run(ctx, func(err error) { log.Warn(err.Error()) }); return nil })
	group.Go(func() error { p.routers.keeper.Run(ctx); return nil })
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer func() { end(context.Cause(ctx)) }()
		return handOn(ctx, shared, p.routers, member, p.store != nil)
	})
	group.Go(func() error { return controller.Run(serving) })
	group.Go(func() error { confirmer.Run(ctx); return nil })
	group.Go(func() error { return member.run(serving, controller.Drained) })
	group.Go(func() error { return checks.run(ctx) })
	group.Go(func() error { discovery.Run(ctx); return nil })
	if scrapes != nil {
		log.Info(fmt.Sprintf("answering scrapes at http://%s%s", scrapes.Addr(), metrics.Path))
		group.Go(func() error { return shown.Serve(ctx, scrapes) })
	}
	balancer := api.Balancer{Status: remote.status(status), Operate: controller.Operate, Drain: member.draining(controller.Drain), Operations: controller.Operations, Flows: controller.Flows, Check: controller.Check,
		Reload: func(by string) (ops.Reloaded, error) { return reloads.reload(ctx, by) }, Explain: p.datapath.Explain, Trace: loggedTrace(p.datapath, log), Capture: loggedCapture(p.datapath, status, log), Metrics: shown.Handler(), Events: happened,
		Sources: configured, Configured: func(change sources.Change, by string) {
			memory.Changed()
			log.Info("configured", "source", change.Source, "generation", change.Generation, "by", by, events.About{Kind: events.KindConfiguration, By: by}.Attr())
		}, Denied: (&denials{shown: shown, log: log}).note, Version: version}
	group.Go(func() error { return serveSocket(ctx, listener, unheard, cfg.Socket, balancer, p.instance.files) })
	if remote != nil {
		log.Info(fmt.Sprintf("answering the API at https://%s", remote.listener.Addr()))
		group.Go(func() error { return remote.serve(ctx, balancer) })
	}
	group.Go(func() error { reloads.onSignal(ctx, hangup); return nil })
	group.Go(func() error { return service.attend(ctx, controller.Responds) })
	return group.Wait()
}

// socketAgain is how often a socket is made again that could not be.
const socketAgain = 2 * time.Second

// serveSocket serves the API at the unix socket. Where that could not be made, for its directory cannot be written to,
// the balancer goes on without, and it is made later.
func serveSocket(ctx context.Context, listener net.Listener, unheard error, path string, b api.Balancer,
	files *durable.Files) error {
	const what = "the unix socket of the API"
	for listener == nil {
		files.Note(what, path, unheard, false)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(socketAgain):
		}
		if listener, unheard = api.Listen(ctx, path); unheard != nil {
			listener = nil
		}
	}
	files.Note(what, path, nil, false)
	return api.Serve(ctx, listener, b)
}

// sources are the file and what the API and other programs have configured before.
func (c *runCmd) sources(cfg *config.Config, log *slog.Logger) (*sources.Sources, error) {
	instance, err := instanceOn(cfg.Interfaces[0], c.StateDir)
	if err != nil {
		return nil, err
	}
	dir, err := sources.DirectoryOf(c.StoreDir, c.Config)
	if err != nil {
		return nil, err
	}
	moved, err := sources.Move(instance.formerSources(), dir)
	if err != nil {
		return nil, err
	}
	if len(moved) > 0 {
		log.Info("moved what the API has configured to where it outlives a reboot", "sources", strings.Join(moved, ", "), "from", instance.formerSources(), "to", dir)
	}
	return sources.Open(c.Config, dir)
}

// listenForScrapes opens the address that Prometheus asks at; nil where the configuration has
// none.
func listenForScrapes(ctx context.Context, cfg *config.Config) (net.Listener, error) {
	if !cfg.Metrics.Listen.IsValid() {
		return nil, nil
	}
	listener, err := metrics.Listen(ctx, cfg.Metrics.Listen.String())
	if err != nil {
		return nil, cfg.At("metrics.listen", "%v", err)
	}
	return listener, nil
}

// untilLeaving returns a context that ends with the other or by the signal by which another
// process is to go on (SIGUSR2), and what says, once it has ended or is no more needed, whether
// that signal has come. Of two signals it counts: a service manager sends its own besides.
func untilLeaving(ctx context.Context) (running context.Context, leaving func() bool) {
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

// goesOn adds to the error of a start what is left as it was.
func (p *parts) goesOn(err error) error {
	if !p.takesOver {
		return err
	}
	return fmt.Errorf("%w\nthe data plane of the process before goes on; `jeoul detach` takes it away", err)
}

// memory returns what keeps operations, or another kind of what is known, nil where that ends with
// the process.
func (p *parts) memory(kind string) control.Memory {
	if p.store == nil {
		return nil
	}
	return p.instance.noted(kind)
}

// open opens the parts; what is open after an error is for close.
func (p *parts) open(ctx context.Context, cfg *config.Config, stateDir string, log *slog.Logger) (err error) {
	if p.instance, err = instanceOn(cfg.Interfaces[0], stateDir); err != nil {
		return err
	}
	if p.store, p.warning, err = p.instance.open(cfg); err != nil {
		return err
	}
	var keep *datapath.Keep
	var kept durable.Options
	if p.store != nil {
		kept.Spare = p.store
	}
	p.instance.files = durable.New(kept)
	if p.store != nil {
		keep = p.instance.keep(p.store)
	}
	p.datapath, err = datapath.Open(datapath.Options{
		Keep: keep, Orphan: cfg.Orphan,
		Interfaces: cfg.Interfaces, Hook: cfg.Hook,
		SwitchOff:  func(link, feature, why string) error { return p.changes.SwitchOff(link, feature, why) },
		SwitchBack: func(link, feature, why string) error { return p.changes.SwitchBack(link, feature, why) },
		Clsact:     func(link string, attach func(ours bool) error) error { return p.changes.GiveClsact(link, attach) },
		FlowLimit:  cfg.Flows.Limit, UnprovenLimit: cfg.Flows.Unproven, Timeouts: cfg.Flows.Timeouts,
	})
	if errors.Is(err, datapath.ErrNoInterface) || errors.Is(err, datapath.ErrUnsupported) {
		return cfg.At(cfg.InterfaceField(), "%v", err)
	}
	if err != nil {
		return err
	}
	openChanges := hostnet.Open
	if p.takesOver = p.datapath.Adopted(); p.takesOver {
		openChanges = hostnet.Inherit
	}
	for _, note := range p.datapath.Notes() {
		log.Info(note)
	}
	if p.changes, err = openChanges(stateDir, p.instance.journal, hostnet.Files(p.instance.files)); err == nil {
		err = p.instance.recheck(cfg.Interfaces[0])
	}
	if err != nil {
		return fmt.Errorf("balance on %s: %w", cfg.Interfaces[0], err)
	}
	for _, event := range p.changes.Events() {
		log.Info(event.String())
	}
	if p.links, err = iface.Watch(cfg.Interfaces...); err != nil {
		return err
	}
	if p.paths, err = backendpaths.New(ctx, cfg.Interfaces); err != nil {
		return err
	}
	p.proxy, err = p.instance.engine(log)
	return err
}

// close takes everything back, or leaves it for another process. The VIPs go before the data
// plane: a packet that came in between would reach a kernel that knows its VIP and not its
// connection, and be answered with a reset.
func (p *parts) close(log *slog.Logger, leave bool) error {
	var errs []error
	if leave || p.takesOver && !p.started {
		errs = append(errs, p.leave())
	} else {
		errs = append(errs, p.takeBack())
	}
	if p.paths != nil {
		errs = append(errs, p.paths.Close())
	}
	if p.changes != nil {
		for _, event := range p.changes.Events() {
			log.Info(event.String())
		}
	}
	if p.links != nil {
		p.links.Close()
	}
	return errors.Join(errs...)
}

// leave lets go of everything that another process is to go on with. Where nothing outlives
// the process, it takes everything back.
func (p *parts) leave() error {
	if p.store == nil {
		return p.takeBack()
	}
	var errs []error
	if p.proxy != nil {
		errs = append(errs, p.proxy.Leave())
	}
	if p.changes != nil {
		p.changes.Leave()
	}
	if p.datapath == nil {
		return errors.Join(append(errs, p.store.Abandon())...)
	}
	return errors.Join(append(errs, p.datapath.Leave())...)
}

// takeBack takes everything back.
func (p *parts) takeBack() error {
	var errs []error
	if p.routers.keeper != nil { // before anything goes that serves what routers send
		errs = append(errs, p.routers.stop())
	}
	if p.proxy != nil { // while its clients can be told
		errs = append(errs, stopProxy(p.proxy))
	}
	if p.changes != nil {
		errs = append(errs, p.changes.Close())
	}
	switch {
	case p.datapath != nil:
		errs = append(errs, p.datapath.Close())
	case p.store != nil:
		// What is there could not be taken over, and goes on.
		return errors.Join(append(errs, p.store.Abandon())...)
	}
	if p.changes != nil {
		errs = append(errs, p.instance.forgetFiles(), p.instance.forgetAliases(""))
	}
	return errors.Join(errs...)
}

const journalPrefix = "run-"

// journalName is the name under which a balancer's changes are noted: that of the
// interface that carries its VIPs, of the characters that such a name may have.
func journalName(link string) string {
	return journalPrefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, link)
}
