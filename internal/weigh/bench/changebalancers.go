// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// A form may have several balancers behind a router that sends each of them a share of the flows. Then
// balancers leave and come back as well as backends do.

const (
	// balancersPrefix begins the names of the events of balancers.
	balancersPrefix = "lb-"
	// leaving is the balancer, from 0, that leaves and comes back.
	leaving = 1
	// paramRouter and paramBFD are there where the router is not the usual, and where it and the balancers have BFD.
	paramBalancers, paramRouter, paramBFD = "balancers", "router", "bfd_ms"
	// leastBFD and mostBFD bound how often packets of BFD are sent: as a balancer's configuration does.
	leastBFD, mostBFD = 10 * time.Millisecond, 10 * time.Second
	// severalNote says what such a laboratory is.
	severalNote = "before each event in which a balancer leaves all connections are closed, and others opened; a router (%s) sends what is for the VIP over several balancers by a hash of addresses and ports (net.ipv4.fib_multipath_hash_policy 1, plain next hops), over a link to each of its own; " +
		"the events of balancers are about one of them, and a change is done when the router's kernel has one way less, or more"
)

// balancerEvents are those of several balancers.
var balancerEvents = []changeEvent{
	{name: "lb-drain", prepare: renew, change: ofOne(subject.Several.Drain)},
	{name: "lb-undrain", change: ofOne(subject.Several.Undrain)},
	{name: "lb-stop", prepare: renew, change: ofOne(subject.Several.End)},
	{name: "lb-start", change: ofOne(subject.Several.Begin)},
	{name: "lb-kill", prepare: renew, change: ofLost(subject.Several.Kill)},
	{name: "lb-revive", change: ofOne(subject.Several.Begin)},
	{name: "lb-cut", prepare: renew, change: ofLost(subject.Several.Cut)},
	{name: "lb-mend", change: ofOne(subject.Several.Mend)},
	{name: "lb-hang", prepare: renew, change: ofOne(subject.Several.Hang)},
	{name: "lb-wake", change: ofOne(subject.Several.Wake)},
	{name: "lb-change", prepare: renew, leaves: []int{serverRemoved}, change: changeWithoutOne},
	{name: "lb-transition", prepare: renew, leaves: []int{serverReweighed}, change: killInTransition},
	{name: "lb-return", leaves: []int{serverReweighed}, change: func(ctx context.Context, c *changeTrial) error {
		if err := ofOne(subject.Several.Begin)(ctx, c); err != nil {
			return err
		}
		return c.apply(ctx, func(s *subject.Service) { s.Servers = slices.Clone(c.backends()) })
	}},
}

// ofBalancers says whether an event is one of several balancers.
func ofBalancers(name string) bool { return strings.HasPrefix(name, balancersPrefix) }

// ofOne is a change of the balancer that leaves. What counts as its time is until the router sends elsewhere, or there
// again.
func ofOne(change func(subject.Several, context.Context, int) (time.Duration, error)) func(context.Context,
	*changeTrial) error {
	return func(ctx context.Context, c *changeTrial) error {
		several, ok := c.changing.(subject.Several)
		if !ok {
			return fmt.Errorf("%w: %s is one balancer", subject.ErrCannot, c.trial.Subject.Name())
		}
		began := time.Now()
		took, err := change(several, ctx, leaving)
		c.began, c.took = append(c.began, began), append(c.took, took)
		c.moved = append(c.moved, began.Add(took))
		return err
	}
}

// ofLost is a change after which the balancer that leaves tells others nothing more: what it knows at the beginning
// counts, not when the router sends elsewhere.
func ofLost(change func(subject.Several, context.Context, int) (time.Duration, error)) func(context.Context,
	*changeTrial) error {
	return func(ctx context.Context, c *changeTrial) error {
		began := time.Now()
		err := ofOne(change)(ctx, c)
		if n := len(c.moved); n > 0 {
			c.moved[n-1] = began
		}
		return err
	}
}

// renew closes all connections and opens others: those that have lived through one event are those that nothing
// moves, or that two balancers know, and would say little of the next.
func renew(ctx context.Context, c *changeTrial) error {
	if !c.worn {
		c.worn = true
		return clock.Sleep(ctx, c.ripe())
	}
	if err := c.crew.Close(ctx); err != nil {
		return err
	}
	crew, err := live.NewCrew(ctx, c.runner.lab, c.runner.options.Executable)
	if err != nil {
		return err
	}
	c.crew, c.notes = crew, nil
	if err := c.open(ctx); err != nil {
		return err
	}
	return clock.Sleep(ctx, c.ripe())
}

// ripe is how old connections are at least when a balancer leaves.
func (c *changeTrial) ripe() time.Duration {
	if slower, ok := c.changing.(subject.Ripening); ok {
		return max(ripe, slower.Ripe())
	}
	return ripe
}

// ripe is how old connections are at least when a balancer leaves, and flows of a transition: balancers hand over what
// is older than a second.
const ripe = 1500 * time.Millisecond

// inTurn does one change after the other.
func inTurn(ctx context.Context, c *changeTrial, changes ...func(context.Context, *changeTrial) error) error {
	for _, change := range changes {
		if err := change(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// changeWithoutOne has a backend go while a balancer is away, and come after that is back: the one that was
// away hears of both.
func changeWithoutOne(ctx context.Context, c *changeTrial) error {
	return inTurn(ctx, c, ofLost(subject.Several.Cut),
		func(ctx context.Context, c *changeTrial) error { return c.apply(ctx, c.without(serverRemoved)) },
		ofOne(subject.Several.Mend),
		func(ctx context.Context, c *changeTrial) error {
			return c.apply(ctx, func(s *subject.Service) { s.Servers = slices.Clone(c.backends()) })
		})
}

// killInTransition has a backend go, so that flows of moved slots are remembered, and kills a balancer soon after.
func killInTransition(ctx context.Context, c *changeTrial) error {
	return inTurn(ctx, c,
		func(ctx context.Context, c *changeTrial) error { return c.apply(ctx, c.without(serverReweighed)) },
		func(ctx context.Context, _ *changeTrial) error { return clock.Sleep(ctx, ripe) },
		ofLost(subject.Several.Kill))
}

// checkBalancers reports what does not go with several balancers.
func (f Form) checkBalancers(at path, fail failFunc) {
	if n := f.Lab.Balancers; n != 0 && (n < 2 || n > lab.MaxBalancers) {
		fail(at.to("lab", "balancers"), "%d is not possible; use 2 to %d, or leave it out", n, lab.MaxBalancers)
	}
	for i, l := range f.Loads {
		if f.Lab.Balancers == 0 {
			for j, name := range l.Changes.Events {
				if ofBalancers(name) {
					fail(at.to("loads", i, "changes", "events", j),
						"%s is an event of several balancers: set lab.balancers", name)
				}
			}
			continue
		}
		if l.Kind != (changeExperiment{}).Name() || l.Changes.NumberedPerSecond > 0 || l.Changes.Proxies > 0 {
			fail(at.to("loads", i, "kind"), "with lab.balancers use change, without numbered_per_second and proxies")
		}
	}
	f.checkRouter(at, fail)
	if f.Lab.Balancers == 0 {
		if f.Lab.Members {
			fail(at.to("lab", "members"), "there is one balancer; set lab.balancers")
		}
		f.checkOneBalancer(at, fail)
		return
	}
	if f.Lab.Containers {
		fail(at.to("lab", "containers"), "goes with one balancer, not with lab.balancers")
	}
	for i, s := range f.Subjects {
		if known, ok := subject.Find(s.Name); ok {
			if reason := subject.BesideOthers(known); reason != "" {
				fail(at.to("subjects", i, "name"), "%s cannot be one of several balancers: %s", s.Name, reason)
			}
		}
	}
}

// checkOneBalancer reports parameters that only several balancers have.
func (f Form) checkOneBalancer(at path, fail failFunc) {
	for i, s := range f.Subjects {
		known, ok := subject.Find(s.Name)
		if !ok {
			continue
		}
		for _, param := range known.Params() {
			if param.Several && len(s.Params[param.Name]) > 0 {
				fail(at.to("subjects", i, "params", param.Name), "it is of several balancers; set lab.balancers")
			}
		}
	}
}

// checkRouter reports what there is no router for.
func (f Form) checkRouter(at path, fail failFunc) {
	if f.Lab.Balancers == 0 && (f.Lab.Router != "" || f.Lab.BFD != 0) {
		fail(at.to("lab"), "router and bfd are of the router before several balancers; set lab.balancers")
	}
	if !slices.Contains(router.Kinds, f.Lab.router()) {
		fail(at.to("lab", "router"), "%q is not possible; use one of %v", f.Lab.Router, router.Kinds)
	}
	if d := f.Lab.BFD; d != 0 && (d < leastBFD || d > mostBFD || d%time.Millisecond != 0) {
		fail(at.to("lab", "bfd"), "%v is not possible; use whole milliseconds, %v to %v, or leave it out", d,
			leastBFD, mostBFD)
	}
}

// routerObstacle says why the form's router cannot be; empty if it can, or there is none.
func (f Form) routerObstacle() string {
	if f.Lab.Balancers == 0 {
		return ""
	}
	return f.Lab.router().Obstacle()
}

// severalParams are what tells results of several balancers apart.
func (s Size) severalParams() map[string]any {
	params := map[string]any{paramBalancers: s.Balancers}
	if s.Router != "" {
		params[paramRouter] = string(s.Router)
	}
	if s.BFD > 0 {
		params[paramBFD] = int(s.BFD.Milliseconds())
	}
	return params
}
