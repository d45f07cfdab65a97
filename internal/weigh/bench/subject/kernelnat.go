// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// natRules are how a program hands the kernel its rules of NAT.
type natRules interface {
	// set sets the rules for a set-up; anew in place of those that are there, in
	// one transaction, so that no packet meets half of them.
	set(ctx context.Context, setup Setup, anew bool) error
	// clear takes the rules back, and with them the tracking of connections.
	clear(ctx context.Context, setup Setup) error
	// taken is how a machine that has lost its bench takes the rules back.
	taken(setup Setup) farRules
	// can returns an error that wraps ErrCannot and says why the rules cannot
	// balance services.
	can(services []Service) error
	// note says what it is, ways how it changes.
	note() string
	ways() string
}

// kernelNAT is the kernel's own NAT, which tracks connections, by rules.
type kernelNAT struct {
	rules natRules
	setup Setup
	undo  undo
	// ruled says that the rules were set.
	ruled bool
}

// startKernelNAT makes the balancer a router that owns the VIP, routes the servers'
// replies through it and sets the rules.
func startKernelNAT(ctx context.Context, setup Setup, rules natRules) (Running, error) {
	running := &kernelNAT{rules: rules, setup: setup}
	err := running.undo.rewriting(setup.Lab)
	if err == nil {
		// Before the rules are there: the run may die right behind.
		err = guardFar(ctx, rules, setup, true)
	}
	if err == nil {
		if err = rules.set(ctx, setup, false); err != nil {
			err = errors.Join(err, guardFar(ctx, rules, setup, false))
		} else {
			running.ruled = true
		}
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

func (r *kernelNAT) Target(i int) netip.AddrPort { return r.setup.vip(i) }

func (*kernelNAT) Cores() float64                { return 0 }
func (*kernelNAT) Quiesce(context.Context) error { return nil }
func (r *kernelNAT) Notes() []string             { return []string{r.rules.note()} }

func (r *kernelNAT) Stop(ctx context.Context) error {
	var err error
	if r.ruled {
		err = clearNAT(ctx, r.rules, r.setup)
		r.ruled = false
	}
	return errors.Join(err, r.undo.all())
}

// clearNAT takes rules back and forgets tracked connections as well: they would
// outlive the rules by minutes. What went with its laboratory is taken back already.
func clearNAT(ctx context.Context, rules natRules, setup Setup) error {
	err := errors.Join(rules.clear(ctx, setup), guardFar(ctx, rules, setup, false), setup.Lab.Balancer.ForgetTracked())
	if errors.Is(err, lab.ErrClosed) {
		return nil
	}
	return err
}

// Change writes the rules anew. What is tracked already keeps its server.
func (r *kernelNAT) Change(ctx context.Context, services []Service) error {
	if err := r.rules.can(services); err != nil {
		return err
	}
	r.setup = r.setup.with(services)
	return r.Reload(ctx)
}

// Reload writes the rules that are there.
func (r *kernelNAT) Reload(ctx context.Context) error { return r.rules.set(ctx, r.setup, true) }

// PIDs are none: the kernel does it.
func (*kernelNAT) PIDs() []int { return nil }

func (r *kernelNAT) Ways() string { return r.rules.ways() }

// Tracked counts the kernel's tracked connections (conntrack).
func (r *kernelNAT) Tracked(context.Context) (Tracked, error) {
	n, err := r.setup.Lab.Balancer.Conntrack()
	return Tracked{Flows: uint64(n)}, err
}
