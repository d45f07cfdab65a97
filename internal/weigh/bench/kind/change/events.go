// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// paramEvent tells the results of a change experiment apart.
const paramEvent = "event"

// The servers that the events are about, by their place in the laboratory. The
// last is the one that comes.
const (
	serverRemoved = iota
	serverDrained
	serverReweighed
	serverFlapping
	serverSilent
	// serverDying and serverHanging are the servers whose services die and hang: one each, for new connections leave
	// both alone meanwhile.
	serverDying   = serverFlapping
	serverHanging = serverSilent
)

// newWeight is the weight of the server that shall weigh more; the others' is 1.
const newWeight = 3

// Pauses between the changes of an event, so that traffic meets the states in between.
const (
	flapPause   = 100 * time.Millisecond
	reloadPause = 50 * time.Millisecond
)

// changeEvent is something that happens to the backends.
type changeEvent struct {
	name string
	// leaves are the servers that leave in it, even if they come back.
	leaves []int
	// prepare, if it is there, comes before anything is counted.
	prepare func(context.Context, *changeTrial) error
	change  func(context.Context, *changeTrial) error
	// after, if it is there, adds to the metrics.
	after func(context.Context, *changeTrial, map[string]float64) error
	// only says whether a trial has the event at all; nil: every one.
	only func(bench.Trial) bool
}

// happens says whether a trial has the event.
func (e changeEvent) happens(t bench.Trial) bool {
	named := own(t.By).Events
	if ofBalancers(e.name) && t.Form.Lab.Balancers == 0 {
		return false
	}
	return (len(named) == 0 || slices.Contains(named, e.name)) && (e.only == nil || e.only(t))
}

// eventNames are the names of the events, in their order.
func eventNames() (names []string) {
	for _, e := range changeEvents {
		names = append(names, e.name)
	}
	return names
}

// changeEvents lists the events in order, those of backends first. Each finds the state that the one before has left.
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
	{name: "silent", leaves: []int{serverSilent}, change: fallSilent},
	{name: "dies", leaves: []int{serverDying}, prepare: settleChecks, change: die},
	{name: "hangs", leaves: []int{serverHanging}, prepare: settleChecks, change: hang},
	{name: "reset", leaves: []int{serverDrained}, change: drainAndReset, after: undrain},
	{name: "share", leaves: []int{serverRemoved}, only: choosesByHash, prepare: tryFlows,
		change: func(ctx context.Context, c *changeTrial) error { return c.apply(ctx, c.without(serverRemoved)) },
		after:  compareFlows},
}, balancerEvents...)

// flap takes a server out and puts it back again and again.
func flap(ctx context.Context, c *changeTrial) error {
	for range own(c.trial.By).Flaps {
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
	for range own(c.trial.By).Reloads {
		if err := c.timed(func() error { return c.changing.Reload(ctx) }); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, reloadPause); err != nil {
			return err
		}
	}
	return nil
}

// choosesByHash says whether the subject's choice is a function of the packet, so
// that it can be asked which flows move.
func choosesByHash(t bench.Trial) bool {
	return t.Params["scheduler"] == string(lb.Maglev)
}

// tryFlows opens connections from known ports.
func tryFlows(ctx context.Context, c *changeTrial) (err error) {
	c.flows, err = c.crew.Flows(ctx, firstPort, own(c.trial.By).Ports)
	return err
}

// compareFlows opens connections from the same ports, and counts those that go to
// another server.
func compareFlows(ctx context.Context, c *changeTrial, metrics map[string]float64) error {
	now, err := c.crew.Flows(ctx, firstPort, own(c.trial.By).Ports)
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

// moves are numbers of flows.
type moves struct{ tried, moved, ofLeft int }

// compare says how flows moved between two tries, with a server that left in
// between.
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

// InPlaceOfEvents has one event happen in place of all, until the function that it returns is called: a test shows by
// it that breaks are counted.
func InPlaceOfEvents(name string, do func(ctx context.Context, r *bench.Runner) error) (restore func()) {
	all := changeEvents
	changeEvents = []changeEvent{{name: name, change: func(ctx context.Context, c *changeTrial) error {
		return do(ctx, c.runner)
	}}}
	return func() { changeEvents = all }
}

// Flapping is the server, from 0, that goes and comes in the event flap.
const Flapping = serverFlapping

// changeTrial is a trial of a change experiment on its way.
type changeTrial struct {
	runner   *bench.Runner
	trial    bench.Trial
	changing subject.Changing
	crew     *live.Crew
	blank    results.Trial
	notes    []string
	// worn says that the connections have lived through an event of balancers.
	worn bool
	// service is the service that the subject balances now.
	service subject.Service
	// left are the servers that have left, by name.
	left map[string]bool
	// away is when each server that has been taken out was away the last time.
	away map[string]time.Time
	// began is when each change of the event began, and took how long it took.
	began []time.Time
	took  []time.Duration
	// moved is when packets began to move between balancers in the event, by its changes of balancers.
	moved []time.Time
	// numbered is the stream of numbered datagrams; nil: there is none.
	numbered *numberedStream
	// flows are the flows of tryFlows.
	flows map[live.Flow]string
	// silence and fault are those of the event, came the connections that came again in it; nil: it has none.
	silence *silence
	fault   *fault
	came    *cameAgain
}

func (c *changeTrial) last() *lab.Host {
	servers := c.backends()
	return servers[len(servers)-1]
}

// without takes a server out.
func (c *changeTrial) without(server int) func(*subject.Service) {
	host := c.backends()[server]
	return func(s *subject.Service) {
		s.Servers = slices.DeleteFunc(s.Servers, func(h *lab.Host) bool { return h == host })
	}
}

// weighed gives a server a weight.
func (c *changeTrial) weighed(server, weight int) func(*subject.Service) {
	host := c.backends()[server]
	return func(s *subject.Service) {
		s.Weights = maps.Clone(s.Weights)
		if s.Weights == nil {
			s.Weights = map[string]int{}
		}
		s.Weights[host.Name] = weight
	}
}

// apply changes the service, and notes how long that took.
func (c *changeTrial) apply(ctx context.Context, change func(*subject.Service)) error {
	wanted := c.service
	wanted.Servers = slices.Clone(wanted.Servers)
	change(&wanted)
	err := c.timed(func() error { return c.changing.Change(ctx, []subject.Service{wanted}) })
	if err != nil {
		return err
	}
	c.service = wanted
	for _, server := range c.backends() {
		if c.left[server.Name] = !slices.Contains(wanted.Servers, server); c.left[server.Name] {
			c.away[server.Name] = time.Now()
		}
	}
	return nil
}

func (c *changeTrial) timed(f func() error) error {
	began := time.Now()
	err := f()
	c.began, c.took = append(c.began, began), append(c.took, time.Since(began))
	return err
}

// open opens the connections.
func (c *changeTrial) open(ctx context.Context) error {
	changes := own(c.trial.By)
	n, note := connections(c.trial.Point, c.runner.Limits)
	if note != "" {
		c.notes = append(c.notes, note)
	}
	c.notes = append(c.notes, c.changing.Ways())
	load := live.Load{
		Target: c.changing.Target(0), Connections: n, Pace: changes.pace(), Timeout: changes.timeout(),
		NewPerSecond: float64(changes.NewPerSecond),
		Laps:         live.Laps{First: firstReused, Ports: changes.Reused, Pace: changes.Lap},
	}
	if carriesUDP(c.trial.Point) {
		load.UDPFlows = udpFlowsEach * c.trial.Form.Lab.Clients
		load.UDPPerSecond, load.UDPPace, load.UDPTimeout = float64(changes.QueriesPerSecond), udpPace, udpTimeout
		load.Laps.UDP = reusedUDP
	} else {
		c.notes = append(c.notes, "no UDP is carried, so nothing was asked by that")
	}
	opening, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	if err := c.crew.Open(opening, load); err != nil {
		return errors.Join(fmt.Errorf("opening %d connections: %w", n, err), ctx.Err())
	}
	return nil
}

// closeBound is how long the connections may take to end.
const closeBound = 2 * time.Second

// close ends the connections. Those whose servers have left cannot end in order, so their sockets are destroyed.
func (c *changeTrial) close(ctx context.Context) error {
	errs := []error{c.numbered.close(), c.crew.Close(ctx)}
	ended := bench.Poll(ctx, closeBound, func() error {
		left, err := bench.OpenSockets(c.runner.Lab.Clients)
		if err != nil {
			return bench.GiveUp(err)
		}
		if left != "" {
			return errors.New("sockets are still open")
		}
		return nil
	})
	if bench.GivesUp(ended) {
		errs = append(errs, ended)
	}
	for _, host := range slices.Concat(c.runner.Lab.Clients, c.runner.Lab.Servers) {
		if err := host.DestroySockets(); !errors.Is(err, lab.ErrNoSocketDestroy) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
