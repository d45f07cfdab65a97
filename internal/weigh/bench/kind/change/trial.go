// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/numbered"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// changeEvent is an event of a change experiment.
type changeEvent struct {
	name string
	// leaves are the indexes of the servers that leave in the event, even if they return.
	leaves []int
	// prepare, if set, runs before anything is counted.
	prepare func(context.Context, *changeTrial) error
	change  func(context.Context, *changeTrial) error
	// after, if set, runs after the event and may add metrics.
	after func(context.Context, *changeTrial, map[string]float64) error
	// only reports whether a trial has the event at all; nil means that every trial has it.
	only func(bench.Trial) bool
}

// changeTrial is a running trial of a change experiment.
type changeTrial struct {
	runner   *bench.Runner
	trial    bench.Trial
	changing subject.Changing
	group    *live.ClientGroup
	blank    results.Trial
	notes    []string
	// used means that the connections have survived an event of balancers.
	used bool
	// service is the service that the subject balances at present.
	service subject.Service
	// left are the servers that have left, by name.
	left map[string]bool
	// lastRemoved is the time when each removed server was last away.
	lastRemoved map[string]time.Time
	// began and took are the start and the duration of each change of the event.
	began []time.Time
	took  []time.Duration
	// moved are the times when packets began to move between balancers, one for each change of balancers in the event.
	moved []time.Time
	// numbered is the stream of numbered datagrams; nil if there is none.
	numbered *numberedStream
	// flows are the flows that tryFlows opened, with their servers.
	flows map[live.Flow]string
	// silence and fault are the silence and the fault of the event, came the connections that clients opened again; nil
	// if the event has none.
	silence     *silence
	fault       *fault
	reconnected *reconnections
}

func (c *changeTrial) last() *lab.Host {
	servers := c.backends()
	return servers[len(servers)-1]
}

// without returns a change that removes a server.
func (c *changeTrial) without(server int) func(*subject.Service) {
	host := c.backends()[server]
	return func(s *subject.Service) {
		s.Servers = slices.DeleteFunc(s.Servers, func(h *lab.Host) bool { return h == host })
	}
}

// weighed returns a change that sets a server's weight.
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

// apply changes the service, and records how long the change took.
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
			c.lastRemoved[server.Name] = time.Now()
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

// fault is a time in which a backend's service was gone, or hung, on a host that answered.
type fault struct {
	began time.Time
	// noticed is when the subject was first seen to have noticed; zero if it never was.
	noticed time.Time
	// transitions are the times after that when the subject was seen to let the backend serve again, and to stop again,
	// alternately.
	transitions []time.Time
	// repairedAt is when the service was back, and recoveredAt when the subject was seen to have noticed that.
	repairedAt, recoveredAt time.Time
}

// silence is a time in which a host was silent.
type silence struct {
	cut time.Time
	// noticed is when the subject was first seen to have noticed; zero if it never was.
	noticed time.Time
	// restored is when the host was connected again, and recoveredAt when the subject showed that.
	restored, recoveredAt time.Time
}

// reconnections counts the connections that a drained server reset and clients opened again.
type reconnections struct {
	// openBefore is the number of connections from reused ports that the server had.
	openBefore uint64
}

// numberedStream is a running stream of numbered datagrams from the first client to the service.
type numberedStream struct {
	stream *numbered.Stream
	cancel context.CancelFunc
	// ended receives the sender's error.
	ended chan error
	// counted is the number of numbers that belong to previous events, and twice that of the numbers that arrived
	// twice.
	counted, twice uint64
	// last is when the last event's numbers were read, and drops are the devices' drops at that time.
	last  time.Time
	drops map[string]uint64
}

// backends returns the subject's backends.
func (c *changeTrial) backends() []*lab.Host {
	return settingsOf(c.trial.By).backends(c.runner.Lab.Servers)
}

// paramEvent is the parameter that distinguishes the results of a change experiment.
const paramEvent = "event"

// The servers of the events, by their index in the laboratory. The last server is the one that is added.
const (
	serverRemoved = iota
	serverDrained
	serverReweighed
	serverFlapping
	serverSilent
	// serverDying and serverHanging are the servers whose services die and hang. Each event has its own server, as the
	// other events leave both alone.
	serverDying   = serverFlapping
	serverHanging = serverSilent
)

// newWeight is the weight of the reweighted server; the others have weight 1.
const newWeight = 3

// Pauses between the changes of an event, so that traffic also meets the states in between.
const (
	flapPause   = 100 * time.Millisecond
	reloadPause = 50 * time.Millisecond
)

// happens reports whether a trial has the event.
func (e changeEvent) happens(t bench.Trial) bool {
	named := settingsOf(t.By).Events
	if ofBalancers(e.name) && t.Form.Lab.Balancers == 0 {
		return false
	}
	return (len(named) == 0 || slices.Contains(named, e.name)) && (e.only == nil || e.only(t))
}

// open opens the connections.
func (c *changeTrial) open(ctx context.Context) error {
	changes := settingsOf(c.trial.By)
	n, note := connections(c.trial.Point, c.runner.Limits)
	if note != "" {
		c.notes = append(c.notes, note)
	}
	c.notes = append(c.notes, c.changing.ChangeMethod())
	load := live.Load{
		Target: c.changing.Target(0), Connections: n, Pace: changes.pace(), Timeout: changes.timeout(),
		NewPerSecond: float64(changes.NewPerSecond),
		ReusedPorts:  live.ReusedPorts{First: firstReused, Ports: changes.Reused, Pace: changes.Lap},
	}
	if carriesUDP(c.trial.Point) {
		load.UDPFlows = udpFlowsEach * c.trial.Form.Lab.Clients
		load.UDPPerSecond, load.UDPPace, load.UDPTimeout = float64(changes.QueriesPerSecond), udpPace, udpTimeout
		load.ReusedPorts.UDP = reusedUDP
	} else {
		c.notes = append(c.notes, "no UDP is carried, so nothing was asked by that")
	}
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := c.group.Open(opening, load); err != nil {
		return errors.Join(fmt.Errorf("opening %d connections: %w", n, err), ctx.Err())
	}
	return nil
}

// closeTimeout is how long the connections may take to end.
const closeTimeout = 2 * time.Second

// close ends the connections. Connections whose servers have left cannot end normally, so their sockets are destroyed.
func (c *changeTrial) close(ctx context.Context) error {
	errs := []error{c.numbered.close(), c.group.Close(ctx)}
	ended := bench.Poll(ctx, closeTimeout, func() error {
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

const (
	// balancersPrefix begins the names of the events of balancers.
	balancersPrefix = "lb-"
	// leaving is the index of the balancer, from 0, that leaves and returns.
	leaving = 1
)

// ofBalancers reports whether an event needs several balancers.
func ofBalancers(name string) bool { return strings.HasPrefix(name, balancersPrefix) }

// connections returns the number of connections to hold: all of the point, or as many as the subject can carry, with a
// note then.
func connections(p bench.Point, limits probe.Limits) (n int, note string) {
	reused := settingsOf(p.By).Reused * p.Form.Lab.Clients
	carried := func(n int) int { return n + n/newShare + reused }
	fits := func(n int) bool { return p.Subject.SkipReason(p.Params, carried(n), limits) == "" }
	if fits(p.Concurrency) {
		return p.Concurrency, ""
	}
	low, high := 1, p.Concurrency // low fits, high does not
	for high-low > 1 {
		if middle := (low + high) / 2; fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	low -= low % 100
	return low, fmt.Sprintf("%d connections and not %d, for %s", low, p.Concurrency,
		p.Subject.SkipReason(p.Params, carried(p.Concurrency), limits))
}

// awaitLive waits until the server of a host answers. It gives up when the server has ended.
func awaitLive(ctx context.Context, r *bench.Runner, server *lab.Host) error {
	at := netip.AddrPortFrom(server.IPv4, changePort)
	return bench.Poll(ctx, r.Options.Slowdown()*bench.ServerTimeout, func() error {
		if err := Live(r).Ended(server); err != nil {
			return bench.GiveUp(err)
		}
		return probe.Listening(ctx, server, at)
	})
}

// openTimeout is how long opening all connections may take.
const openTimeout = time.Minute
