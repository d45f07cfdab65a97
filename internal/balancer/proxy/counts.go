// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
)

// readAllCounts asks all workers for their counters, and saves them.
func (e *engine) readAllCounts(ctx context.Context) {
	e.countsMu.Lock()
	defer e.countsMu.Unlock()
	e.askWorkers(ctx)
	e.saveCounts()
}

// askWorkers asks all workers for their counters, and reports whether one has ended since the last time.
func (e *engine) askWorkers(ctx context.Context) (ended bool) {
	all, err := e.socket.Processes(ctx)
	if err != nil {
		return false // the worker is about to end or to start: its last answer counts
	}
	workers := map[int]master.Statistics{}
	for pid, session := range e.heldWorkers {
		workers[pid] = e.counts.worker(pid)
		if counted, err := session.Statistics(ctx); err == nil {
			workers[pid] = counted
		}
	}
	for _, pid := range append(all.Workers, all.Old...) {
		if workers[pid] != nil {
			continue
		}
		counted, err := e.socket.Statistics(ctx, pid)
		if err != nil {
			counted = e.counts.worker(pid)
		}
		workers[pid] = counted
	}
	return e.counts.update(workers)
}

// readCounts asks all workers for their counts, and saves them only if a worker has ended: the others can be asked
// again, and a write for each reader would be one for each status.
func (e *engine) readCounts(ctx context.Context) {
	e.countsMu.Lock()
	defer e.countsMu.Unlock()
	if e.askWorkers(ctx) {
		e.saveCounts()
	}
}

// saveCounts saves the counts for the next process.
func (e *engine) saveCounts() {
	if err := e.counts.save(e.countsFile); err != nil {
		e.log.Error("the proxy engine's counts could not be kept", "because", err)
	}
}

// Stats returns the counters; see Engine. A service's connections and bytes are its clients'.
func (e *engine) Stats(ctx context.Context) (Stats, error) {
	if e.State().PID != 0 {
		e.readCounts(ctx)
	}
	if err := ctx.Err(); err != nil {
		return Stats{}, fmt.Errorf("asking HAProxy for its counters: %w", err)
	}
	s := Stats{Services: map[lb.ServiceKey]Counts{}, Backends: map[lb.BackendKey]Counts{}}
	for object, n := range e.counts.sums() {
		s.addObject(object, n)
	}
	return s, nil
}

// addObject adds an object's numbers to those of its service, or of its backend.
func (s Stats) addObject(object master.Object, n numbers) {
	name, _, _ := cutLast(object.Section, '.')
	vip, port, err := parseEndpoint(name)
	if err != nil {
		return // a section of no service
	}
	key := lb.ServiceKey{VIP: vip, Port: port, Protocol: lb.TCP}
	switch object.Server {
	case master.Frontend:
		c := s.Services[key]
		c.addClients(n)
		s.Services[key] = c
	case master.Backend:
		c := s.Services[key]
		c.addBackends(n)
		s.Services[key] = c
	default:
		address, port, err := parseEndpoint(object.Server)
		if err != nil {
			return
		}
		at := lb.BackendKey{Service: key, Address: address, Port: port}
		c := s.Backends[at]
		c.addClients(n)
		c.addBackends(n)
		s.Backends[at] = c
	}
}

// addClients adds the counters of connections to a section of clients, or to a server.
func (c *Counts) addClients(n numbers) {
	c.Connections += max(n["conn_tot"], n["connect"])
	c.Active += n["scur"]
	c.BytesIn += n["bin"]
	c.BytesOut += n["bout"]
	c.Denied += n["dreq"] + n["dcon"] + n["dses"]
	for i, name := range []string{"hrsp_other", "hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx"} {
		c.Responses[i] += n[name]
		c.Requests += n[name]
	}
}

// addBackends adds the counters of connections that HAProxy opens to servers.
func (c *Counts) addBackends(n numbers) {
	c.Failed += n["econ"]
	c.Retried += n["wretr"]
	c.Redispatched += n["wredis"]
	c.Queued += n["qcur"]
}

// cutLast cuts text at the last separator.
func cutLast(text string, separator byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(text, separator); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return text, "", false
}
