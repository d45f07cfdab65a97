// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The hidden commands of jeoul that run servers and clients.
const (
	ServeCommand = "live-server"
	HoldCommand  = "live-client"
)

// startTimeout is how long a server or a client may take to start.
const startTimeout = 10 * time.Second

// Servers are the server processes of a laboratory, by the names of their hosts.
type Servers struct {
	executable   string
	port, health uint16
	proxies      []*lab.Host
	servers      map[string]*server
}

// server is the process of a server, and its output.
type server struct {
	process *lab.Process
	output  outputTail
}

// StartServers starts a server on each of some hosts of a laboratory, at a port and at another one for health checks. A
// server answers with its host's name, and connections from a proxy with that proxy's name. The servers are stopped
// with the laboratory. The caller must test whether they answer.
func StartServers(ctx context.Context, hosts, proxies []*lab.Host, executable string, port,
	health uint16) (*Servers, error) {
	s := &Servers{executable: executable, port: port, health: health, proxies: proxies,
		servers: map[string]*server{}}
	for _, host := range hosts {
		if err := s.Start(ctx, host); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Start starts the server of a host that has none running.
func (s *Servers) Start(ctx context.Context, host *lab.Host) error {
	args := []string{"bench", ServeCommand, "--name", host.Name, "--port", strconv.Itoa(int(s.port)), "--health",
		strconv.Itoa(int(s.health))}
	for _, proxy := range s.proxies {
		args = append(args, "--proxy", proxy.IPv4.String()+"="+proxy.Name)
	}
	started := &server{}
	process, err := host.Start(context.WithoutCancel(ctx),
		lab.Command{Path: s.executable, Args: args, Stdout: &started.output, Stderr: &started.output})
	if err == nil {
		started.process = process
		s.servers[host.Name] = started
	}
	return err
}

// Ended returns nil while the server of a host runs, and afterwards how it ended with the end of its output. It returns
// nil for a host on which no server was started.
func (s *Servers) Ended(host *lab.Host) error {
	started := s.servers[host.Name]
	if started == nil {
		return nil
	}
	select {
	case <-started.process.Done():
		return fmt.Errorf("the server on %s has ended: %w%s", host.Name,
			cmp.Or(started.process.Wait(), errors.New("by itself")), started.output.last())
	default:
		return nil
	}
}

// Of returns the process of a host's server.
func (s *Servers) Of(host *lab.Host) *lab.Process { return s.servers[host.Name].process }

// ClientGroup is the group of the clients of a laboratory.
type ClientGroup struct{ clients []*client }

// client is the process of a client.
type client struct {
	name    string
	process *lab.Process
	output  outputTail
	conn    net.Conn
	orders  *json.Encoder
	reports *json.Decoder
}

// NewClientGroup starts a client on every client host of a laboratory. Close ends them.
func NewClientGroup(ctx context.Context, l *lab.Lab, executable string) (*ClientGroup, error) {
	group := &ClientGroup{}
	for _, host := range l.Clients {
		c := &client{name: host.Name}
		group.clients = append(group.clients, c)
		if err := c.start(ctx, host, executable); err != nil {
			return nil, errors.Join(fmt.Errorf("starting a client on %s: %w", host.Name, err),
				group.Close(context.WithoutCancel(ctx)))
		}
	}
	return group, nil
}

// start starts the process and waits until it has connected.
func (c *client) start(ctx context.Context, host *lab.Host, executable string) error {
	socket := filepath.Join(host.Dir, "live.sock")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	c.process, err = host.Start(context.WithoutCancel(ctx), lab.Command{Path: executable,
		Args: []string{"bench", HoldCommand, "--socket", socket}, Stdout: &c.output, Stderr: &c.output})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	go func() {
		select {
		case <-c.process.Done():
		case <-waiting.Done():
		}
		listener.Close()
	}()
	if c.conn, err = listener.Accept(); err != nil {
		return fmt.Errorf("it did not come up within %v: %w%s", startTimeout, errors.Join(ctx.Err(), err),
			c.output.last())
	}
	c.orders, c.reports = json.NewEncoder(c.conn), json.NewDecoder(c.conn)
	return nil
}

// do sends an order and returns the client's report, with an error if the report has one.
func (c *client) do(ctx context.Context, o order) (report, error) {
	var r report
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	err := c.orders.Encode(o)
	if err == nil {
		err = c.reports.Decode(&r)
	}
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err != nil:
		return r, fmt.Errorf("%s does not answer: %w%s", c.name, err, c.output.last())
	case r.Error != "":
		return r, fmt.Errorf("%s: %s", c.name, r.Error)
	}
	return r, nil
}

// all sends every client an order concurrently, and calls each with each client's report, one at a time.
func (c *ClientGroup) all(ctx context.Context, of func(i int) order, each func(i int, r report)) error {
	var mu sync.Mutex
	var group errgroup.Group
	var errs []error
	for i, client := range c.clients {
		group.Go(func() error {
			r, err := client.do(ctx, of(i))
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			if each != nil {
				each(i, r)
			}
			return nil
		})
	}
	return errors.Join(group.Wait(), errors.Join(errs...))
}

// Open lets the clients run a load together, and returns when every connection has been answered once.
func (c *ClientGroup) Open(ctx context.Context, load Load) error {
	n := len(c.clients)
	return c.all(ctx, func(i int) order {
		share := load
		share.Connections = part(load.Connections, n, i)
		share.UDPFlows = part(load.UDPFlows, n, i)
		share.NewPerSecond /= float64(n)
		share.UDPPerSecond /= float64(n)
		return order{Open: &share}
	}, nil)
}

// part returns the i-th of n parts of total. The parts differ by one at most.
func part(total, n, i int) int {
	size := total / n
	if i < total%n {
		size++
	}
	return size
}

// Begin resets the counts of all clients.
func (c *ClientGroup) Begin(ctx context.Context) error {
	return c.all(ctx, func(int) order { return order{Begin: true} }, nil)
}

// Counts returns the sum of all counts since Begin, without percentiles.
func (c *ClientGroup) Counts(ctx context.Context) (Counts, error) {
	var sum Counts
	err := c.all(ctx, func(int) order { return order{Count: true} }, func(_ int, r report) {
		if r.Counts != nil {
			sum.Add(*r.Counts)
		}
	})
	return sum, err
}

// Settle waits until the effects of everything before it have shown: every held connection has been answered since, or
// has broken and was reopened, and all other requests that had begun are done. It returns the sum of all counts since
// Begin. If within bound some connections could be neither held nor reopened, it returns the sum and an error.
func (c *ClientGroup) Settle(ctx context.Context, bound time.Duration) (Counts, error) {
	var sum Counts
	latency := hdrhistogram.New(1, maxLatency, 3)
	var broken []error
	err := c.all(ctx, func(int) order { return order{Settle: bound} }, func(_ int, r report) {
		if r.Counts == nil {
			return
		}
		sum.Add(*r.Counts)
		if r.Counts.Latency == nil {
			return
		}
		of, err := hdrhistogram.Decode(r.Counts.Latency)
		if err != nil {
			broken = append(broken, fmt.Errorf("reading a client's latencies: %w", err))
			return
		}
		latency.Merge(of)
	})
	sum.Percentiles = percentiles(latency)
	return sum, errors.Join(append(broken, err)...)
}

// percentiles returns the percentiles of a histogram in microseconds; nil if it is empty.
func percentiles(h *hdrhistogram.Histogram) *Percentiles {
	if h.TotalCount() == 0 {
		return nil
	}
	ms := func(us int64) float64 { return float64(us) / 1e3 }
	return &Percentiles{P50: ms(h.ValueAtPercentile(50)), P99: ms(h.ValueAtPercentile(99)), Max: ms(h.Max())}
}

// Stay keeps the connections from reused ports open, waits within bound until every port has one, and returns how many
// each server has.
func (c *ClientGroup) Stay(ctx context.Context, bound time.Duration) (map[string]uint64, error) {
	by := map[string]uint64{}
	err := c.all(ctx, func(int) order { return order{Stay: bound} }, func(_ int, r report) { by = sum(by, r.Stay) })
	return by, err
}

// Go lets the clients continue: each port opens connections again.
func (c *ClientGroup) Go(ctx context.Context) error {
	return c.all(ctx, func(int) order { return order{Go: true} }, nil)
}

// Flow is a client's local port.
type Flow struct {
	Client string
	Port   int
}

// Flows opens a connection from each of a number of local ports of every client, and returns which server answered
// each. Ports in use are left out.
func (c *ClientGroup) Flows(ctx context.Context, first, count int) (map[Flow]string, error) {
	at := map[Flow]string{}
	err := c.all(ctx, func(int) order { return order{Flows: &portRange{first, count}} }, func(i int, r report) {
		for port, server := range r.Flows {
			at[Flow{c.clients[i].name, port}] = server
		}
	})
	return at, err
}

// Close ends the clients, and their connections with them.
func (c *ClientGroup) Close(ctx context.Context) error {
	var errs []error
	for _, client := range c.clients {
		if client.conn != nil {
			client.conn.Close()
		}
		if client.process != nil {
			errs = append(errs, client.process.Stop(ctx))
		}
	}
	return errors.Join(errs...)
}

// outputTail keeps the end of a process's output.
type outputTail struct {
	mu   sync.Mutex
	kept []byte
}

const wordsKept = 500

func (w *outputTail) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, data...)
	w.kept = bytes.Clone(w.kept[max(len(w.kept)-wordsKept, 0):])
	return len(data), nil
}

// last returns the kept text as one line, after a semicolon; empty if there is none.
func (w *outputTail) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	words := strings.Join(strings.Fields(strings.ToValidUTF8(string(w.kept), "")), " ")
	if words == "" {
		return ""
	}
	return fmt.Sprintf("; its last words: %q", words)
}
