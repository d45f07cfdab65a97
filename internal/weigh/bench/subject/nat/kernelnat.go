// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/lab"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// kernelNAT is the kernel's own NAT with connection tracking, set up by rules.
type kernelNAT struct {
	rules natRules
	setup subject.Setup
	undo  subject.Undo
	// rulesSet means that the rules were set.
	rulesSet bool
}

// startKernelNAT makes the balancer a router that has the VIP, routes the servers' replies through it and sets the
// rules.
func startKernelNAT(ctx context.Context, setup subject.Setup, rules natRules) (subject.Running, error) {
	running := &kernelNAT{rules: rules, setup: setup}
	err := running.undo.Rewriting(setup.Lab)
	if err == nil {
		// Before the rules exist: the run may die right after they are set.
		err = guardRemote(ctx, rules, setup, true)
	}
	if err == nil {
		if err = rules.set(ctx, setup, false); err != nil {
			err = errors.Join(err, guardRemote(ctx, rules, setup, false))
		} else {
			running.rulesSet = true
		}
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

func (r *kernelNAT) Target(i int) netip.AddrPort { return r.setup.VIP(i) }

func (*kernelNAT) Cores() float64                { return 0 }
func (*kernelNAT) Quiesce(context.Context) error { return nil }
func (r *kernelNAT) Notes() []string             { return []string{r.rules.note()} }

func (r *kernelNAT) Stop(ctx context.Context) error {
	var err error
	if r.rulesSet {
		err = clearNAT(ctx, r.rules, r.setup)
		r.rulesSet = false
	}
	return errors.Join(err, r.undo.All())
}

// clearNAT removes the rules and deletes tracked connections, too: they would outlive the rules by minutes. Settings
// that ended with their laboratory need no removal.
func clearNAT(ctx context.Context, rules natRules, setup subject.Setup) error {
	err := errors.Join(rules.clear(ctx, setup), guardRemote(ctx, rules, setup, false),
		setup.Lab.Balancer.FlushConntrack())
	if errors.Is(err, lab.ErrClosed) {
		return nil
	}
	return err
}

// Change writes the rules again. Tracked connections keep their servers.
func (r *kernelNAT) Change(ctx context.Context, services []subject.Service) error {
	if err := r.rules.can(services); err != nil {
		return err
	}
	r.setup = r.setup.With(services)
	return r.Reload(ctx)
}

// Reload writes the present rules again.
func (r *kernelNAT) Reload(ctx context.Context) error { return r.rules.set(ctx, r.setup, true) }

// PIDs returns none: the kernel balances.
func (*kernelNAT) PIDs() []int { return nil }

func (r *kernelNAT) ChangeMethod() string { return r.rules.changeMethod() }

// Tracked counts the kernel's tracked connections (conntrack).
func (r *kernelNAT) Tracked(context.Context) (subject.Tracked, error) {
	n, err := r.setup.Lab.Balancer.Conntrack()
	return subject.Tracked{Flows: uint64(n)}, err
}

// Remembered counts the connections that the balancer's kernel tracks. Their limit is that of the machine.
func (r *kernelNAT) Remembered(context.Context) (subject.Remembered, error) {
	n, err := r.setup.Lab.Balancer.Conntrack()
	if err != nil {
		return subject.Remembered{}, err
	}
	all := subject.Remembered{What: "connections that the balancer's kernel tracks (nf_conntrack)", Flows: uint64(n)}
	const path = "/proc/sys/net/netfilter/nf_conntrack_max"
	text, err := os.ReadFile(path)
	if err == nil {
		all.Limit, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	if err != nil {
		return all, fmt.Errorf("reading how many connections can be tracked: %w", err)
	}
	return all, nil
}
