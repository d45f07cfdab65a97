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

// The AS numbers of the router and of the balancers (RFC 6996, for private use), and the time after which a speaker
// that is silent is dead, the shortest that BGP has.
const (
	RouterAS   = 64513
	BalancerAS = 64512
	HoldTime   = 3 * time.Second
)

// RouterKind is the router that is asked for, or the usual one.
func (s Setup) RouterKind() router.Kind { return cmp.Or(s.Router, router.Kinds[0]) }

// Router is the running router before several balancers; nil is one that was never started.
type Router struct{ daemons []*Program }

// StartRouter runs the router, with a session for each balancer: equal routes are one of several next hops in its
// kernel, and a drained balancer's is the last choice. If it fails, nothing of it is left.
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

// Stop ends the router's processes, the last first.
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
	// One that did not end in order has left it, and another starts in its place.
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

// nextHopTimeout bounds the time in which a router learns or withdraws a route.
const nextHopTimeout = time.Minute

// AwaitNextHop waits until the router sends to a balancer, or does not, and returns when that was first seen.
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

// nextHopInterval is how often the router's routes are read.
const nextHopInterval = 2 * time.Millisecond

// UntilNextHop does something to a balancer, and returns how long it took until the router sent to it, or did not.
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
