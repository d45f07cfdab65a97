// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// A form may have several balancers behind a router that sends each of them a share of the flows. Then balancers leave
// and return, as backends do.

// balancerEvents are the events of several balancers.
var balancerEvents = []changeEvent{
	{name: "lb-drain", prepare: reopenConnections, change: balancerChange(subject.Several.Drain)},
	{name: "lb-undrain", change: balancerChange(subject.Several.Undrain)},
	{name: "lb-stop", prepare: reopenConnections, change: balancerChange(subject.Several.End)},
	{name: "lb-start", change: balancerChange(subject.Several.Begin)},
	{name: "lb-kill", prepare: reopenConnections, change: abruptChange(subject.Several.Kill)},
	{name: "lb-revive", change: balancerChange(subject.Several.Begin)},
	{name: "lb-cut", prepare: reopenConnections, change: abruptChange(subject.Several.CutLink)},
	{name: "lb-mend", change: balancerChange(subject.Several.RestoreLink)},
	{name: "lb-hang", prepare: reopenConnections, change: balancerChange(subject.Several.SuspendSpeaker)},
	{name: "lb-wake", change: balancerChange(subject.Several.ResumeSpeaker)},
	{name: "lb-change", prepare: reopenConnections, leaves: []int{serverRemoved}, change: changeWithoutOne},
	{name: "lb-transition", prepare: reopenConnections, leaves: []int{serverReweighed}, change: killInTransition},
	{name: "lb-return", leaves: []int{serverReweighed}, change: func(ctx context.Context, c *changeTrial) error {
		if err := balancerChange(subject.Several.Begin)(ctx, c); err != nil {
			return err
		}
		return c.apply(ctx, func(s *subject.Service) { s.Servers = slices.Clone(c.backends()) })
	}},
}

// balancerChange makes a change to the balancer that leaves. Its duration ends when the router sends packets elsewhere,
// or to that balancer again.
func balancerChange(change func(subject.Several, context.Context, int) (time.Duration, error)) func(context.Context,
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

// abruptChange is balancerChange for a change after which the balancer that leaves hands over no more flows. The ages
// of its flows count at the beginning of the change, and not when the router sends packets elsewhere.
func abruptChange(change func(subject.Several, context.Context, int) (time.Duration, error)) func(context.Context,
	*changeTrial) error {
	return func(ctx context.Context, c *changeTrial) error {
		began := time.Now()
		err := balancerChange(change)(ctx, c)
		if n := len(c.moved); n > 0 {
			c.moved[n-1] = began
		}
		return err
	}
}

// reopenConnections closes all connections and opens others. Connections that survived one event are those that nothing
// moves, or that two balancers know. They would bias the next event.
func reopenConnections(ctx context.Context, c *changeTrial) error {
	if !c.used {
		c.used = true
		return clock.Sleep(ctx, c.handoverAge())
	}
	if err := c.group.Close(ctx); err != nil {
		return err
	}
	group, err := live.NewClientGroup(ctx, c.runner.Lab, c.runner.Options.Executable)
	if err != nil {
		return err
	}
	c.group, c.notes = group, nil
	if err := c.open(ctx); err != nil {
		return err
	}
	return clock.Sleep(ctx, c.handoverAge())
}

// handoverAge returns the minimum age of connections when a balancer leaves.
func (c *changeTrial) handoverAge() time.Duration {
	if slower, ok := c.changing.(subject.HandoverDelayed); ok {
		return max(handoverAge, slower.HandoverAge())
	}
	return handoverAge
}

// handoverAge is the minimum age of connections, and of flows of a transition, when a balancer leaves: balancers hand
// over flows that are older than a second.
const handoverAge = 1500 * time.Millisecond

// inTurn makes one change after another.
func inTurn(ctx context.Context, c *changeTrial, changes ...func(context.Context, *changeTrial) error) error {
	for _, change := range changes {
		if err := change(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// changeWithoutOne removes a backend while a balancer is disconnected, and adds the backend after the balancer is
// connected again.
func changeWithoutOne(ctx context.Context, c *changeTrial) error {
	return inTurn(ctx, c, abruptChange(subject.Several.CutLink),
		func(ctx context.Context, c *changeTrial) error { return c.apply(ctx, c.without(serverRemoved)) },
		balancerChange(subject.Several.RestoreLink),
		func(ctx context.Context, c *changeTrial) error {
			return c.apply(ctx, func(s *subject.Service) { s.Servers = slices.Clone(c.backends()) })
		})
}

// killInTransition removes a backend, so that the balancers store flows of moved slots, and kills a balancer shortly
// afterwards.
func killInTransition(ctx context.Context, c *changeTrial) error {
	return inTurn(ctx, c,
		func(ctx context.Context, c *changeTrial) error { return c.apply(ctx, c.without(serverReweighed)) },
		func(ctx context.Context, _ *changeTrial) error { return clock.Sleep(ctx, handoverAge) },
		abruptChange(subject.Several.Kill))
}

// checkEvents reports events that need several balancers in a form with one.
func checkEvents(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	for i, name := range settingsOf(l).Events {
		if form.Lab.Balancers == 0 && ofBalancers(name) {
			fail(at.To("changes", "events", i), "%s is an event of several balancers: set lab.balancers", name)
		}
	}
}

func (kind) BesideOthers(l bench.Load) bool {
	return settingsOf(l).NumberedPerSecond == 0 && settingsOf(l).Proxies == 0
}
