// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// eventNames returns the names of the events, in their order.
func eventNames() (names []string) {
	for _, e := range changeEvents {
		names = append(names, e.name)
	}
	return names
}

// changeEvents lists the events in order, those of backends first. Each event starts from the state that the one before
// has left.
var changeEvents = append([]changeEvent{
	{name: "add", change: func(ctx context.Context, c *changeTrial) error {
		return c.apply(ctx, func(s *subject.Service) { s.Servers = append(s.Servers, c.last()) })
	}},
	{name: "remove", leaves: []int{serverRemoved}, change: func(ctx context.Context, c *changeTrial) error {
		return c.apply(ctx, c.without(serverRemoved))
	}},
	{name: "drain", change: func(ctx context.Context, c *changeTrial) error {
		return c.apply(ctx, c.weighed(serverDrained, 0))
	}},
	{name: "reweigh", change: func(ctx context.Context, c *changeTrial) error {
		return c.apply(ctx, c.weighed(serverReweighed, newWeight))
	}},
	{name: "flap", leaves: []int{serverFlapping}, change: flap},
	{name: "reload", change: reload},
	{name: "undo", change: func(ctx context.Context, c *changeTrial) error {
		return c.apply(ctx, func(s *subject.Service) { s.Servers, s.Weights = slices.Clone(c.backends()), nil })
	}},
	{name: "quiet", change: quiet},
	{name: "restart", only: canRestart, change: restart},
	{name: "upgrade", only: canUpgrade, change: upgrade},
	{name: "kill", only: canRestart, change: killAndBegin},
	{name: "stop", only: canRestart, change: stopAndBegin},
	{name: "silent", leaves: []int{serverSilent}, change: disconnectHost},
	{name: "dies", leaves: []int{serverDying}, prepare: settleChecks, change: killServer},
	{name: "hangs", leaves: []int{serverHanging}, prepare: settleChecks, change: suspendServer},
	{name: "reset", leaves: []int{serverDrained}, change: drainAndReset, after: undrain},
	{name: "share", leaves: []int{serverRemoved}, only: selectsByHash, prepare: tryFlows,
		change: func(ctx context.Context, c *changeTrial) error { return c.apply(ctx, c.without(serverRemoved)) },
		after:  compareFlows},
}, balancerEvents...)

// flap removes a server and adds it back, again and again.
func flap(ctx context.Context, c *changeTrial) error {
	for range settingsOf(c.trial.By).Flaps {
		before := slices.Clone(c.service.Servers)
		if err := c.apply(ctx, c.without(serverFlapping)); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, flapPause); err != nil {
			return err
		}
		if err := c.apply(ctx, func(s *subject.Service) { s.Servers = before }); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, flapPause); err != nil {
			return err
		}
	}
	return nil
}

func reload(ctx context.Context, c *changeTrial) error {
	for range settingsOf(c.trial.By).Reloads {
		if err := c.timed(func() error { return c.changing.Reload(ctx) }); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, reloadPause); err != nil {
			return err
		}
	}
	return nil
}

// selectsByHash reports whether the subject selects by a hash of the packet, so that a test of flows shows which ones
// move.
func selectsByHash(t bench.Trial) bool {
	return t.Params["scheduler"] == string(lb.Maglev)
}

// tryFlows opens connections from known ports.
func tryFlows(ctx context.Context, c *changeTrial) (err error) {
	c.flows, err = c.group.Flows(ctx, firstPort, settingsOf(c.trial.By).Ports)
	return err
}

// compareFlows opens connections from the same ports, and counts the connections that reach another server than before.
func compareFlows(ctx context.Context, c *changeTrial, metrics map[string]float64) error {
	now, err := c.group.Flows(ctx, firstPort, settingsOf(c.trial.By).Ports)
	if err != nil {
		return err
	}
	share := compare(c.flows, now, c.backends()[serverRemoved].Name)
	if share.tried == 0 {
		return errors.New("no local port was free")
	}
	percent := func(n int) float64 { return 100 * float64(n) / float64(share.tried) }
	metrics[results.FlowsTried] = float64(share.tried)
	metrics[results.FlowsMovedPercent] = percent(share.moved)
	metrics[results.FlowsOfLeftPercent] = percent(share.ofLeft)
	metrics[results.FlowsMovedBeyondPercent] = percent(share.moved - share.ofLeft)
	return nil
}

// moves counts flows.
type moves struct{ tried, moved, ofLeft int }

// compare counts the flows that moved between two tries. left is the server that left in between.
func compare(before, after map[live.Flow]string, left string) (m moves) {
	for flow, server := range after {
		was, known := before[flow]
		if !known {
			continue
		}
		m.tried++
		if was == left {
			m.ofLeft++
		}
		if was != server {
			m.moved++
		}
	}
	return m
}

// InPlaceOfEvents replaces all events by one, until the returned function is called. A test uses it to check that
// breaks are counted.
func InPlaceOfEvents(name string, do func(ctx context.Context, r *bench.Runner) error) (restore func()) {
	all := changeEvents
	changeEvents = []changeEvent{{name: name, change: func(ctx context.Context, c *changeTrial) error {
		return do(ctx, c.runner)
	}}}
	return func() { changeEvents = all }
}

// Flapping is the index of the server, from 0, that leaves and returns in the event flap.
const Flapping = serverFlapping
