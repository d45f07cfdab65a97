// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// runningSeveral are balancers with the same configuration, and the router in front of them.
type runningSeveral struct {
	*runningJeoul // the first balancer, which is asked if one is enough
	all           []*runningJeoul
	router        *subject.Router
	vipHolders    subject.VIPHolders
	// routed undoes the routes and other settings of the laboratory.
	routed subject.Undo
}

func (s jeoul) startSeveral(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	several := &runningSeveral{}
	for _, h := range setup.Lab.Balancers {
		one := setup
		one.At = h
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
	if err := r.routed.On(func(on bool) error { return l.DetourVIP(l.VIP4, on) }); err != nil {
		return err
	}
	if s.hook == lb.HookXDP {
		if err := r.routed.On(l.AcceptXDP); err != nil {
			return err
		}
	}
	if err := r.prepareServers(s.mode); err != nil {
		return err
	}
	if r.setup.Members {
		if err := ShareKey(l); err != nil {
			return err
		}
	}
	if r.router, err = subject.StartRouter(ctx, r.setup); err != nil {
		return err
	}
	return r.each(func(one *runningJeoul) error {
		if err := s.start(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.setup.At.Name, err)
		}
		_, err := subject.AwaitNextHop(ctx, l, one.setup.At, true)
		return err
	})
}

// prepareServers sets servers up to answer as the mode requires.
func (r *runningSeveral) prepareServers(mode lb.Mode) (err error) {
	switch {
	case mode != lb.FullNAT:
		r.vipHolders, err = subject.HoldVIP(r.setup.Lab, mode)
	case r.setup.Members:
		err = r.routed.On(func(on bool) error { return detourReplies(r.setup, on) })
	}
	return err
}

// each calls do with all balancers concurrently.
func (r *runningSeveral) each(do func(*runningJeoul) error) error {
	var group errgroup.Group
	for _, one := range r.all {
		group.Go(func() error { return do(one) })
	}
	return group.Wait()
}

func (r *runningSeveral) Count() int { return len(r.all) }

// Target returns the service's address, which is the same for all balancers.
func (r *runningSeveral) Target(i int) netip.AddrPort { return r.setup.VIP(i) }

// Change changes one balancer after another, as operators and their tools do. A balancer that does not run gets its
// file.
func (r *runningSeveral) Change(ctx context.Context, services []subject.Service) error {
	for _, one := range r.all {
		if !one.process.Runs() {
			one.setup = one.setup.With(services)
			if err := one.configure(one.setup); err != nil {
				return err
			}
			continue
		}
		if err := one.Change(ctx, services); err != nil {
			return fmt.Errorf("%s: %w", one.setup.At.Name, err)
		}
	}
	return nil
}

func (r *runningSeveral) Reload(ctx context.Context) error {
	return r.each(func(one *runningJeoul) error { return one.Reload(ctx) })
}

func (r *runningSeveral) PIDs() (pids []int) {
	for _, one := range r.all {
		if one.process.Runs() {
			pids = append(pids, one.PIDs()...)
		}
	}
	return pids
}

// Tracked returns the sum of the flows of all balancers; a balancer that does not run has none.
func (r *runningSeveral) Tracked(ctx context.Context) (sum subject.Tracked, err error) {
	for _, one := range r.all {
		if !one.process.Runs() {
			continue
		}
		if t, err := one.Tracked(ctx); err == nil {
			sum.Flows, sum.Bytes = sum.Flows+t.Flows, sum.Bytes+t.Bytes
		}
	}
	return sum, nil
}

func (r *runningSeveral) ChangeMethod() string {
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
			len(r.all), r.setup.RouterKind().Name(), subject.HoldTime, watching) +
		"servers come and go by a new configuration that one daemon after another reads again"
}

func (r *runningSeveral) Stop(ctx context.Context) error {
	errs := []error{r.each(func(one *runningJeoul) error {
		return errors.Join(one.signalSpeaker(ctx, syscall.SIGCONT), one.Stop(ctx))
	})}
	return errors.Join(append(errs, r.router.Stop(ctx), r.routed.All(), r.vipHolders.Release())...)
}

// until calls do with a balancer, and returns how long it took until the router sent to the balancer, or no longer did.
func (r *runningSeveral) until(ctx context.Context, n int, present bool, do func(*runningJeoul) error) (time.Duration,
	error) {
	one := r.all[n]
	return subject.UntilNextHop(ctx, r.setup.Lab, one.setup.At, present, func() error { return do(one) })
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
		// Kill both at once: the wait for the daemon's end also waits for its output, which the speaker shares.
		return errors.Join(one.process.Process.Signal(syscall.SIGKILL), syscall.Kill(pid, syscall.SIGKILL),
			one.Kill(ctx))
	})
}

func (r *runningSeveral) Begin(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *runningJeoul) error { return one.Begin(ctx) })
}

func (r *runningSeveral) CutLink(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *runningJeoul) error { return one.setup.At.Cut(true) })
}

func (r *runningSeveral) RestoreLink(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *runningJeoul) error { return one.setup.At.Cut(false) })
}

func (r *runningSeveral) SuspendSpeaker(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, false, func(one *runningJeoul) error { return one.signalSpeaker(ctx, syscall.SIGSTOP) })
}

func (r *runningSeveral) ResumeSpeaker(ctx context.Context, n int) (time.Duration, error) {
	return r.until(ctx, n, true, func(one *runningJeoul) error { return one.signalSpeaker(ctx, syscall.SIGCONT) })
}

// speaker returns the process that speaks BGP for a balancer.
func (r *runningJeoul) speaker(ctx context.Context) (int, error) {
	status, err := r.client.Status(ctx)
	switch {
	case err != nil:
		return 0, err
	case status.BGP == nil || status.BGP.SpeakerPID == 0:
		return 0, fmt.Errorf("%w: it shows no speaker", subject.ErrNotUp)
	}
	r.speakerPID = status.BGP.SpeakerPID
	return r.speakerPID, nil
}

// signalSpeaker signals the speaker. A suspended speaker does not answer its daemon, so signalSpeaker resumes the last
// known process.
func (r *runningJeoul) signalSpeaker(ctx context.Context, signal syscall.Signal) error {
	if signal != syscall.SIGCONT {
		if _, err := r.speaker(ctx); err != nil {
			return err
		}
		r.speakerSuspended = true
		return syscall.Kill(r.speakerPID, signal)
	}
	if !r.speakerSuspended {
		return nil
	}
	r.speakerSuspended = false
	return syscall.Kill(r.speakerPID, signal)
}
