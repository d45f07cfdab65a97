// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	backendpaths "github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// resources are the parts that a balancer opens on its host, in the order in which they are opened.
type resources struct {
	instance instance
	// adopts: another process has left the data plane and the network changes.
	adopts bool
	// started: this process has to undo the changes that it took over.
	started bool
	// store is nil where nothing outlives the process.
	store *pins.Store
	// warning names the part of that which is not to be had; it is logged when the balancer has started.
	warning  string
	datapath *datapath.Datapath
	changes  *hostnet.Changes
	links    *iface.Interfaces
	paths    *backendpaths.Paths
	proxy    proxy.Engine
	// routers announces the VIPs; there is a speaker only where the configuration has routers.
	routers *routers
}

// addForwarding adds to the error of a start that the data plane of the previous process still forwards.
func (r *resources) addForwarding(err error) error {
	if !r.adopts {
		return err
	}
	return fmt.Errorf("%w\nthe data plane of the process before goes on; `jeoul detach` takes it away", err)
}

// memory returns the file that keeps operations, or another kind of state; nil where that ends with the process.
func (r *resources) memory(kind string) control.Memory {
	if r.store == nil {
		return nil
	}
	return r.instance.stateFile(kind)
}

// open opens the resources; those that are open after an error are for close.
func (r *resources) open(ctx context.Context, cfg *config.Config, stateDir string, log *slog.Logger) (err error) {
	if r.instance, err = instanceOn(cfg.Interfaces[0], stateDir); err != nil {
		return err
	}
	if r.store, r.warning, err = r.instance.open(cfg); err != nil {
		return err
	}
	if err := r.openDataPlane(cfg, log); err != nil {
		return err
	}
	openChanges := hostnet.Open
	if r.adopts = r.datapath.Adopted(); r.adopts {
		openChanges = hostnet.Adopt
	}
	if r.changes, err = openChanges(stateDir, r.instance.journal, hostnet.Files(r.instance.files)); err == nil {
		err = r.instance.recheck(cfg.Interfaces[0])
	}
	if err != nil {
		return fmt.Errorf("balance on %s: %w", cfg.Interfaces[0], err)
	}
	for _, event := range r.changes.Events() {
		log.Info(event.String())
	}
	if r.links, err = iface.Watch(cfg.Interfaces...); err != nil {
		return err
	}
	if r.paths, err = backendpaths.New(ctx, cfg.Interfaces); err != nil {
		return err
	}
	r.proxy, err = r.instance.engine(log)
	return err
}

// openDataPlane opens the data plane, that of the previous process where there is one.
func (r *resources) openDataPlane(cfg *config.Config, log *slog.Logger) (err error) {
	var keep *keeper.Location
	var kept durable.Options
	if r.store != nil {
		kept.Fallback = r.store
	}
	r.instance.files = durable.New(kept)
	if r.store != nil {
		keep = r.instance.keeperLocation(r.store)
	}
	r.datapath, err = datapath.Open(datapath.Options{
		Keep: keep, Orphan: cfg.Orphan,
		Interfaces: cfg.Interfaces, Hook: cfg.Hook,
		DisableFeature: func(link, feature, why string) error { return r.changes.DisableFeature(link, feature, why) },
		RestoreFeature: func(link, feature, why string) error { return r.changes.RestoreFeature(link, feature, why) },
		WithClsact: func(link string, attach func(ours bool) error) error {
			return r.changes.EnsureClsact(link,
				attach)
		},
		FlowLimit: cfg.Flows.Limit, UnprovenLimit: cfg.Flows.Unproven, Timeouts: cfg.Flows.Timeouts,
	})
	if errors.Is(err, datapath.ErrNoInterface) || errors.Is(err, datapath.ErrUnsupported) {
		return cfg.At(cfg.InterfaceField(), "%v", err)
	}
	if err != nil {
		return err
	}
	for _, note := range r.datapath.Notes() {
		log.Info(note)
	}
	return nil
}

// close takes everything back, or leaves it for another process. The VIPs go before the data
// plane: a packet that came in between would reach a kernel that knows its VIP and not its
// connection, and be answered with a reset.
func (r *resources) close(log *slog.Logger, leave bool) error {
	var errs []error
	if leave || r.adopts && !r.started {
		errs = append(errs, r.leave())
	} else {
		errs = append(errs, r.revert())
	}
	if r.paths != nil {
		errs = append(errs, r.paths.Close())
	}
	if r.changes != nil {
		for _, event := range r.changes.Events() {
			log.Info(event.String())
		}
	}
	if r.links != nil {
		r.links.Close()
	}
	return errors.Join(errs...)
}

// leave releases everything that another process is to go on with. Where nothing outlives the process, it takes
// everything back.
func (r *resources) leave() error {
	if r.store == nil {
		return r.revert()
	}
	var errs []error
	if r.proxy != nil {
		errs = append(errs, r.proxy.Detach())
	}
	if r.changes != nil {
		r.changes.Detach()
	}
	if r.datapath == nil {
		return errors.Join(append(errs, r.store.Abandon())...)
	}
	return errors.Join(append(errs, r.datapath.Release())...)
}

// revert undoes everything that was set up.
func (r *resources) revert() error {
	var errs []error
	if r.routers != nil { // before the parts go that serve the routers' packets
		errs = append(errs, r.routers.stop())
	}
	if r.proxy != nil { // while its clients can be told
		errs = append(errs, stopProxy(r.proxy))
	}
	if r.changes != nil {
		errs = append(errs, r.changes.Close())
	}
	switch {
	case r.datapath != nil:
		errs = append(errs, r.datapath.Close())
	case r.store != nil:
		// The data plane that is there could not be taken over, and goes on.
		return errors.Join(append(errs, r.store.Abandon())...)
	}
	if r.changes != nil {
		errs = append(errs, r.instance.removeFiles(), r.instance.removeAliases(""))
	}
	return errors.Join(errs...)
}
