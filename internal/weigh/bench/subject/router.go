// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The AS numbers of the router and of the balancers (RFC 6996, for private use), and the time after which a silent
// speaker is dead, which is BGP's minimum.
const (
	RouterAS   = 64513
	BalancerAS = 64512
	HoldTime   = 3 * time.Second
)

// RouterKind returns the requested router, or the default one.
func (s Setup) RouterKind() router.Kind { return cmp.Or(s.Router, router.Kinds[0]) }

// Router is the running router in front of several balancers; nil means that none was started.
type Router struct{ daemons []*Program }

// StartRouter runs the router, with a session for each balancer. Its kernel gets equal routes as one route with several
// next hops, and the route of a draining balancer only if there is no other. If StartRouter fails, it leaves nothing
// behind.
func StartRouter(ctx context.Context, setup Setup) (*Router, error) {
	host := setup.Lab.Router
	plan := router.Plan{Dir: host.Dir, ID: host.IPv4, AS: RouterAS, BalancersAS: BalancerAS, HoldTime: HoldTime,
		BFD: setup.BFD}
	for _, h := range setup.Lab.Balancers {
		plan.Balancers = append(plan.Balancers, router.Session{Local: h.Gateway4, Balancer: h.Uplink4})
	}
	daemons, err := setup.RouterKind().Daemons(plan)
	if err != nil {
		return nil, err
	}
	r := &Router{}
	for _, d := range daemons {
		p, err := startDaemon(ctx, host, d)
		if p != nil {
			r.daemons = append(r.daemons, p)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting the router: %w", err), r.Stop(context.WithoutCancel(ctx)))
		}
	}
	return r, nil
}

// Stop ends the router's processes, the last one first.
func (r *Router) Stop(ctx context.Context) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, daemon := range slices.Backward(r.daemons) {
		errs = append(errs, daemon.Stop(ctx))
	}
	return errors.Join(errs...)
}

// startDaemon runs a process of the router, and waits until it is ready.
func startDaemon(ctx context.Context, host *lab.Host, d router.Daemon) (*Program, error) {
	// A process that did not end normally has left this file. Another one starts now.
	if err := os.Remove(d.Ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := host.WriteFile(d.File, []byte(d.Text)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", d.File, err)
	}
	p, err := StartProgram(ctx, host, d.Path, d.Args...)
	if err != nil {
		return nil, err
	}
	return p, p.WaitUntil(ctx, func() error {
		_, err := os.Stat(d.Ready)
		return err
	})
}

// nextHopTimeout is how long a router may take to learn or withdraw a route.
const nextHopTimeout = time.Minute

// AwaitNextHop waits until the router sends to a balancer, or no longer does, and returns when that was first seen.
func AwaitNextHop(ctx context.Context, l *lab.Lab, h *lab.Host, want bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, nextHopTimeout)
	defer cancel()
	tick := time.NewTicker(nextHopInterval)
	defer tick.Stop()
	for {
		hops, err := l.NextHops(l.VIP4)
		if err != nil {
			return time.Time{}, err
		}
		has := false
		for _, hop := range hops {
			has = has || hop == h
		}
		if has == want {
			return time.Now(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("the router has %d next hops for %s, and %s is one of them: %v: %w", len(hops),
				l.VIP4, h.Name, has, errors.Join(ErrNotUp, ctx.Err()))
		}
	}
}

// nextHopInterval is the interval at which the router's routes are read.
const nextHopInterval = 2 * time.Millisecond

// UntilNextHop calls do with a balancer, and returns how long it took until the router sent to the balancer, or no
// longer did.
func UntilNextHop(ctx context.Context, l *lab.Lab, at *lab.Host, present bool, do func() error) (time.Duration, error) {
	began := time.Now()
	seen := make(chan time.Time, 1)
	var group errgroup.Group
	group.Go(func() error {
		when, err := AwaitNextHop(ctx, l, at, present)
		seen <- when
		return err
	})
	group.Go(do)
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w", at.Name, err)
	}
	return (<-seen).Sub(began), nil
}
