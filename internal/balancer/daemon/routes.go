// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// kindSpeaker is an instance's unix socket of the process that speaks BGP, and kindDrained that of the file
// which says that it is drained; both outlive a balancer that has ended.
const kindSpeaker, kindDrained = "speaker", "drained"

// routers is the speaker of a balancer, as the controller sees it.
type routers struct {
	keeper *bgp.Keeper
	// flush has other members know all flows of this balancer before a drain withdraws its VIPs.
	flush func(context.Context)
	// announced: VIPs were desired last. Only the controller's loop uses it.
	announced bool
}

// routersOptions are the settings and parts of routers.
type routersOptions struct {
	// program is the one that the speaker runs: one that runs another is replaced.
	program bgp.Program
	// established is called with each session that is new.
	established func()
	flush       func(context.Context)
	log         *slog.Logger
}

// newRouters returns routers that start no process before something is wanted.
func newRouters(i instance, opt routersOptions) *routers {
	keeper := bgp.NewKeeper(bgp.KeeperOptions{Socket: i.file(kindSpeaker), Program: opt.program, Log: opt.log,
		Established: opt.established})
	return &routers{keeper: keeper, flush: opt.flush}
}

// listTimeout is how long a speaker may take to list the VIPs that it announces.
const listTimeout = 2 * time.Second

// PreviouslyAnnounced are the VIPs that the previous process has announced.
func (r *routers) PreviouslyAnnounced() []netip.Addr {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	return r.keeper.AnnouncedVIPs(ctx)
}

// SetDesired sets the routes to announce from now on. A drain that withdraws VIPs flushes flows before; without VIPs,
// as at the start of a drained balancer, no packets come whose flows others lack.
func (r *routers) SetDesired(w ops.Routes) {
	if w.Draining && len(w.VIPs) == 0 && r.announced {
		r.flush(context.Background())
	}
	r.announced = len(w.VIPs) > 0
	r.keeper.SetDesired(bgp.Desired{BGP: w.BGP, VIPs: w.VIPs, Draining: w.Draining, Pool: w.Pool, Backup: w.Backup,
		OrphanTimeout: w.Orphan})
}

// WaitAnnounced waits until that is so.
func (r *routers) WaitAnnounced(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	r.keeper.AwaitDelivery(ctx)
}

// FillStatus fills in the state of the routers.
func (r *routers) FillStatus(to *ops.BGP) {
	state, problem := r.keeper.State()
	to.SpeakerPID = state.PID
	if problem == nil && len(state.Faults) > 0 {
		problem = errors.New(strings.Join(state.Faults, "; "))
	}
	if problem != nil {
		to.Problem = problem.Error()
	}
	to.Peers = append(to.Peers, state.Peers...)
}

// stop withdraws all VIPs, and ends the speaker.
func (r *routers) stop() error { return r.keeper.Stop(context.Background()) }

// endSpeaker ends the speaker that a process has left.
func (i instance) endSpeaker() error {
	if err := bgp.NewKeeper(bgp.KeeperOptions{Socket: i.file(kindSpeaker)}).Stop(context.Background()); err != nil {
		return fmt.Errorf("routers may still send packets here: %w", err)
	}
	return nil
}
