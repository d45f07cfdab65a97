// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// severalIPVS are IPVS balancers with the same table. Each has a BIRD that announces the VIP to the router, because the
// kernel itself speaks to no router.
type severalIPVS struct {
	*runningIPVS
	all    []*ipvsBalancer
	router *subject.Router
	sync   ipvsSync
}

func (s ipvs) startSeveral(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	several := &severalIPVS{runningIPVS: &runningIPVS{method: s.method, setup: setup, scheduler: schedulerOf(params)},
		sync: syncOf(params)}
	for i, h := range setup.Lab.Balancers {
		one := &ipvsBalancer{at: h, table: s.table(setup, params), removedBefore: map[netip.AddrPort]bool{}}
		if several.syncs() {
			one.syncID = i + 1
		}
		several.all = append(several.all, one)
	}
	if err := several.start(ctx); err != nil {
		return nil, errors.Join(err, several.Stop(context.WithoutCancel(ctx)))
	}
	return several, nil
}

func (r *severalIPVS) syncs() bool { return r.sync.threshold != "" }

func (r *severalIPVS) start(ctx context.Context) (err error) {
	l := r.setup.Lab
	if r.setup.BFD != 0 {
		return fmt.Errorf("%w: BIRD beside IPVS watches its way to the router by its session only, not by BFD",
			subject.ErrCannot)
	}
	if err := r.undo.On(func(on bool) error { return l.DetourVIP(l.VIP4, on) }); err != nil {
		return err
	}
	if r.vips, err = subject.HoldVIP(l, lb.L2DSR); err != nil {
		return err
	}
	if r.router, err = subject.StartRouter(ctx, r.setup); err != nil {
		return err
	}
	return r.each(func(one *ipvsBalancer) error {
		// Without the VIP on the host, the kernel does not pass its packets to IPVS.
		if err := subject.OwnVIPOnLo(one.at, l.VIP4); err != nil {
			return err
		}
		if err := r.begin(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.at.Name, err)
		}
		_, err := subject.AwaitNextHop(ctx, l, one.at, true)
		return err
	})
}

// each calls do with all balancers concurrently.
func (r *severalIPVS) each(do func(*ipvsBalancer) error) error {
	var group errgroup.Group
	for _, one := range r.all {
		group.Go(func() error { return do(one) })
	}
	return group.Wait()
}

// begin sets a balancer's IPVS table, starts the synchronisation of connections, and then announces the balancer to the
// router.
func (r *severalIPVS) begin(ctx context.Context, b *ipvsBalancer) error {
	if err := b.set(ctx, true); err != nil {
		return err
	}
	if err := r.sync.set(b.at); err != nil {
		return err
	}
	if b.syncID != 0 {
		if err := startSync(ctx, b.at, b.syncID); err != nil {
			return err
		}
	}
	bird, err := b.announce(ctx, r.setup.Lab.VIP4)
	b.bird = bird
	return err
}

// set sets the table in the kernel, or removes it with everything that belongs to it.
func (b *ipvsBalancer) set(ctx context.Context, on bool) error {
	if on == b.serves {
		return nil
	}
	if !on && b.syncID != 0 {
		if err := stopSync(ctx, b.at); err != nil {
			return err
		}
	}
	previousExpire, err := ipvsTask.On(ctx, b.at, ipvsChange{*b.table, on})
	if err != nil {
		return fmt.Errorf("setting the services of IPVS on %s: %w", b.at.Name, err)
	}
	if b.serves = on; on {
		b.table.PreviousExpire = previousExpire
		return nil
	}
	return b.awaitNoConnections(ctx)
}

// Count returns the number of balancers.
func (r *severalIPVS) Count() int { return len(r.all) }

// until calls do with a balancer, and returns how long it took until the router sent to the balancer, or no longer did.
func (r *severalIPVS) until(ctx context.Context, n int, present bool, do func(*ipvsBalancer) error) (time.Duration,
	error) {
	one := r.all[n]
	return subject.UntilNextHop(ctx, r.setup.Lab, one.at, present, func() error { return do(one) })
}

// leave removes a balancer from the router's routes. Once no more packets arrive, it also removes the balancer's
// connections: the balancer would reset connections for as long as it has the VIP.
func (r *severalIPVS) leave(ctx context.Context, n int, do func(*ipvsBalancer) error) (time.Duration, error) {
	took, err := r.until(ctx, n, false, do)
	if err == nil {
		err = r.all[n].set(ctx, false)
	}
	return took, err
}

// Drain withdraws the VIP. The balancer continues to serve packets that still arrive.
func (r *severalIPVS) Drain(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *ipvsBalancer) error { return one.commandBIRD(ctx, "disable", birdVIP) })
}

// Undrain announces the VIP again.
func (r *severalIPVS) Undrain(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *ipvsBalancer) error { return one.commandBIRD(ctx, "enable", birdVIP) })
}

// End withdraws the VIP by stopping BIRD normally, and removes the table.
func (r *severalIPVS) End(ctx context.Context, n int) (time.Duration, error) {
	return r.leave(ctx, n, func(one *ipvsBalancer) error { return one.bird.Stop(ctx) })
}

// Kill kills BIRD, and removes the kernel's table and connections, as the end of its machine does.
func (r *severalIPVS) Kill(ctx context.Context, n int) (time.Duration, error) {
	return r.leave(ctx, n, func(one *ipvsBalancer) error {
		err := one.bird.Process.Signal(syscall.SIGKILL)
		<-one.bird.Process.Done()
		return err
	})
}

// Begin returns a balancer to service, without any connections from before.
func (r *severalIPVS) Begin(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *ipvsBalancer) error { return r.begin(ctx, one) })
}

// CutLink sets a balancer's link to the router down. Synchronisation messages still pass the switch.
func (r *severalIPVS) CutLink(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *ipvsBalancer) error { return one.at.Cut(true) })
}

// RestoreLink sets that link up.
func (r *severalIPVS) RestoreLink(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *ipvsBalancer) error { return one.at.Cut(false) })
}

// SuspendSpeaker suspends BIRD without ending it.
func (r *severalIPVS) SuspendSpeaker(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *ipvsBalancer) error { return one.bird.Process.Signal(syscall.SIGSTOP) })
}

// ResumeSpeaker resumes BIRD.
func (r *severalIPVS) ResumeSpeaker(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *ipvsBalancer) error { return one.bird.Process.Signal(syscall.SIGCONT) })
}

// Change changes the tables, one balancer after another. A balancer that does not serve gets its table when it does.
func (r *severalIPVS) Change(_ context.Context, services []subject.Service) error {
	wanted := ipvsServices(r.setup.With(services))
	for _, one := range r.all {
		one.noteRemoved(wanted)
		if !one.serves {
			for i := range wanted {
				one.table.Services[i].Servers = wanted[i].Servers
			}
			continue
		}
		if err := one.table.changeOn(one.at, wanted); err != nil {
			return err
		}
	}
	r.setup = r.setup.With(services)
	return nil
}

// Reload does nothing: IPVS reads no file.
func (r *severalIPVS) Reload(context.Context) error { return nil }

// PIDs returns the processes of BIRD; IPVS itself is in the kernels.
func (r *severalIPVS) PIDs() (pids []int) {
	for _, one := range r.all {
		if one.serves {
			pids = append(pids, one.bird.Process.PID())
		}
	}
	return pids
}

// Tracked counts the connections in the kernels of all balancers.
func (r *severalIPVS) Tracked(context.Context) (sum subject.Tracked, err error) {
	for _, one := range r.all {
		n, err := one.connections(func(netip.AddrPort) bool { return true })
		if err != nil {
			return sum, err
		}
		sum.Flows += uint64(n)
	}
	return sum, nil
}

// HandoverAge returns the age from which on other balancers know a connection.
func (r *severalIPVS) HandoverAge() time.Duration {
	if r.syncs() {
		return syncHandoverAge
	}
	return 0
}

func (r *severalIPVS) ChangeMethod() string {
	return r.sync.words +
		fmt.Sprintf("; %d balancers, each a kernel's IPVS with BIRD beside it, announce the VIP to %s over a link each, with a hold time of %v and without graceful restart; ", len(r.all), r.setup.RouterKind().Name(), subject.HoldTime) +
		"balancer after balancer, " + ipvsComeAndGo
}

// Stop stops all balancers, and undoes the set-up.
func (r *severalIPVS) Stop(ctx context.Context) error {
	errs := []error{r.each(func(one *ipvsBalancer) error {
		var err error
		if one.bird != nil {
			_ = one.bird.Process.Signal(syscall.SIGCONT) // an ended process needs none
			err = one.bird.Stop(ctx)
		}
		return errors.Join(err, one.set(ctx, false))
	})}
	return errors.Join(append(errs, r.router.Stop(ctx), r.runningIPVS.Stop(ctx))...)
}
