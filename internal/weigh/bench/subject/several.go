// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"golang.org/x/sync/errgroup"
)

// Several is a running subject of several balancers behind a router that sends to each of them a share of the
// flows. Balancers are told apart by number, from 0. Each method returns when the router has heard of it, and
// after how long.
type Several interface {
	Changing
	// Count is how many there are.
	Count() int
	// Drain takes a balancer out of the router's ways as for maintenance, and Undrain brings it back.
	Drain(ctx context.Context, n int) (time.Duration, error)
	Undrain(ctx context.Context, n int) (time.Duration, error)
	// End stops a balancer for good, and Kill kills its daemon and its speaker (SIGKILL); Begin starts it again.
	End(ctx context.Context, n int) (time.Duration, error)
	Kill(ctx context.Context, n int) (time.Duration, error)
	Begin(ctx context.Context, n int) (time.Duration, error)
	// Cut takes a balancer's link to the router down, and Mend up.
	Cut(ctx context.Context, n int) (time.Duration, error)
	Mend(ctx context.Context, n int) (time.Duration, error)
	// Hang stops the speaker of a balancer without ending it, and Wake has it go on.
	Hang(ctx context.Context, n int) (time.Duration, error)
	Wake(ctx context.Context, n int) (time.Duration, error)
}

// Ripening is a running subject of several balancers that tell each other of connections some time after they began.
type Ripening interface {
	// Ripe is how old a connection is when the others have heard of it; 0: they never do, or at once.
	Ripe() time.Duration
}

// runningSeveral are balancers of one configuration, and the router before them.
type runningSeveral struct {
	*runningJeoul // the first, which speaks for all where one is asked
	all           []*runningJeoul
	router        []*program
	held          vipHolders
	// routed is what else was set up in the laboratory.
	routed undo
}

func (s jeoul) startSeveral(ctx context.Context, setup Setup, params Params) (Running, error) {
	several := &runningSeveral{}
	for _, h := range setup.Lab.Balancers {
		one := setup
		one.at = h
		several.all = append(several.all, &runningJeoul{subject: s, setup: one, params: params,
			weights: setup.Services[0].Weights})
	}
	several.runningJeoul = several.all[0]
	if err := several.start(ctx, s); err != nil {
		return nil, errors.Join(err, several.Stop(context.WithoutCancel(ctx)))
	}
	return several, nil
}

func (r *runningSeveral) start(ctx context.Context, s jeoul) (err error) {
	l := r.setup.Lab
	if err := r.routed.on(func(on bool) error { return l.DetourVIP(l.VIP4, on) }); err != nil {
		return err
	}
	if s.hook == lb.HookXDP {
		if err := r.routed.on(l.AcceptXDP); err != nil {
			return err
		}
	}
	if err := r.prepareServers(s.mode); err != nil {
		return err
	}
	if r.setup.Members {
		if err := r.setup.shareKey(); err != nil {
			return err
		}
	}
	if r.router, err = r.setup.startRouter(ctx); err != nil {
		return err
	}
	return r.each(func(one *runningJeoul) error {
		if err := s.start(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.setup.at.Name, err)
		}
		_, err := awaitWay(ctx, l, one.setup.at, true)
		return err
	})
}

// prepareServers has servers answer as a mode needs it.
func (r *runningSeveral) prepareServers(mode lb.Mode) (err error) {
	switch {
	case mode != lb.FullNAT:
		r.held, err = holdVIP(r.setup.Lab, mode)
	case r.setup.Members:
		err = r.routed.on(r.setup.detourReplies)
	}
	return err
}

// each does something with all balancers at once.
func (r *runningSeveral) each(do func(*runningJeoul) error) error {
	var group errgroup.Group
	for _, one := range r.all {
		group.Go(func() error { return do(one) })
	}
	return group.Wait()
}

func (r *runningSeveral) Count() int { return len(r.all) }

// Target is the same for all.
func (r *runningSeveral) Target(i int) netip.AddrPort { return r.setup.vip(i) }

// Change changes balancer after balancer, as operators and their tools do; one that does not run gets its file.
func (r *runningSeveral) Change(ctx context.Context, services []Service) error {
	for _, one := range r.all {
		if !one.lives() {
			one.setup = one.setup.with(services)
			if err := one.configure(one.setup); err != nil {
				return err
			}
			continue
		}
		if err := one.Change(ctx, services); err != nil {
			return fmt.Errorf("%s: %w", one.setup.at.Name, err)
		}
	}
	return nil
}

func (r *runningSeveral) Reload(ctx context.Context) error {
	return r.each(func(one *runningJeoul) error { return one.Reload(ctx) })
}

// lives says whether there is a process.
func (r *runningJeoul) lives() bool {
	if r.process == nil {
		return false
	}
	select {
	case <-r.process.process.Done():
		return false
	default:
		return true
	}
}

func (r *runningSeveral) PIDs() (pids []int) {
	for _, one := range r.all {
		if one.lives() {
			pids = append(pids, one.PIDs()...)
		}
	}
	return pids
}

// Tracked is what all remember together; one that does not run remembers nothing.
func (r *runningSeveral) Tracked(ctx context.Context) (sum Tracked, err error) {
	for _, one := range r.all {
		if !one.lives() {
			continue
		}
		if t, err := one.Tracked(ctx); err == nil {
			sum.Flows, sum.Bytes = sum.Flows+t.Flows, sum.Bytes+t.Bytes
		}
	}
	return sum, nil
}

func (r *runningSeveral) Ways() string {
	handing := ""
	if r.setup.Members {
		handing = "as members, they hand flows over to each other; "
	}
	watching := ""
	if r.setup.BFD > 0 {
		watching = fmt.Sprintf(", BFD of %d × %v,", router.Multiplier, r.setup.BFD)
	}
	return handing +
		fmt.Sprintf("%d balancers, each a daemon with a speaker of its own, announce the VIP to %s over a link each, with a hold time of %v%s and without graceful restart; ",
			len(r.all), r.setup.router().Name(), holdTime, watching) +
		"servers come and go by a new configuration that one daemon after another reads again"
}

func (r *runningSeveral) Stop(ctx context.Context) error {
	errs := []error{r.each(func(one *runningJeoul) error {
		return errors.Join(one.signalSpeaker(ctx, syscall.SIGCONT), one.Stop(ctx))
	})}
	for _, daemon := range slices.Backward(r.router) {
		errs = append(errs, daemon.stop(ctx))
	}
	return errors.Join(append(errs, r.routed.all(), r.held.release())...)
}

// until does something to a balancer, and returns how long it took until the router sent to it, or did not.
func (r *runningSeveral) until(ctx context.Context, n int, way bool, do func(*runningJeoul) error) (time.Duration,
	error) {
	one := r.all[n]
	return untilWay(ctx, r.setup.Lab, one.setup.at, way, func() error { return do(one) })
}

// untilWay does something to a balancer, and returns how long it took until the router sent to it, or did not.
func untilWay(ctx context.Context, l *lab.Lab, at *lab.Host, way bool, do func() error) (time.Duration, error) {
	began := time.Now()
	seen := make(chan time.Time, 1)
	var group errgroup.Group
	group.Go(func() error {
		when, err := awaitWay(ctx, l, at, way)
		seen <- when
		return err
	})
	group.Go(do)
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w", at.Name, err)
	}
	return (<-seen).Sub(began), nil
}

func (r *runningSeveral) Drain(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *runningJeoul) error {
		_, err := one.client.Drain(ctx, true)
		return err
	})
}

func (r *runningSeveral) Undrain(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *runningJeoul) error {
		_, err := one.client.Drain(ctx, false)
		return err
	})
}

func (r *runningSeveral) End(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *runningJeoul) error { return one.End(ctx) })
}

func (r *runningSeveral) Kill(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *runningJeoul) error {
		pid, err := one.speaker(ctx)
		if err != nil {
			return err
		}
		// Both at once: the wait for the daemon's end is for its output, too, which the speaker has.
		return errors.Join(one.process.process.Signal(syscall.SIGKILL), syscall.Kill(pid, syscall.SIGKILL),
			one.Kill(ctx))
	})
}

func (r *runningSeveral) Begin(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *runningJeoul) error { return one.Begin(ctx) })
}

func (r *runningSeveral) Cut(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *runningJeoul) error { return one.setup.at.Cut(true) })
}

func (r *runningSeveral) Mend(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *runningJeoul) error { return one.setup.at.Cut(false) })
}

func (r *runningSeveral) Hang(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *runningJeoul) error { return one.signalSpeaker(ctx, syscall.SIGSTOP) })
}

func (r *runningSeveral) Wake(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *runningJeoul) error { return one.signalSpeaker(ctx, syscall.SIGCONT) })
}

// speaker is the process that speaks BGP for a balancer.
func (r *runningJeoul) speaker(ctx context.Context) (int, error) {
	status, err := r.client.Status(ctx)
	switch {
	case err != nil:
		return 0, err
	case status.BGP == nil || status.BGP.SpeakerPID == 0:
		return 0, fmt.Errorf("%w: it shows no speaker", ErrNotUp)
	}
	r.spoke = status.BGP.SpeakerPID
	return r.spoke, nil
}

// signalSpeaker signals the speaker. One that is stopped does not answer its daemon, so the last one known is
// meant where none is shown.
func (r *runningJeoul) signalSpeaker(ctx context.Context, signal syscall.Signal) error {
	if signal != syscall.SIGCONT {
		if _, err := r.speaker(ctx); err != nil {
			return err
		}
		r.hung = true
		return syscall.Kill(r.spoke, signal)
	}
	if !r.hung {
		return nil
	}
	r.hung = false
	return syscall.Kill(r.spoke, signal)
}
