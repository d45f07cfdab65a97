// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/clock"
)

const (
	// ServeTimeout is how long HAProxy may take to serve after a start or a reload: it reads every certificate, on a
	// host that may be busy.
	ServeTimeout = time.Minute
	// drainListenTimeout bounds the wait for replaced workers to stop accepting connections.
	drainListenTimeout = 10 * time.Second
	// servePoll is the interval between two checks of whether HAProxy serves.
	servePoll = 10 * time.Millisecond
)

// Errors of a configuration that HAProxy did not load, by its state afterwards.
var (
	// errExited: it has ended.
	errExited = errors.New("HAProxy ended")
	// errUnchanged: it serves as before.
	errUnchanged = errors.New("it goes on with the configuration before")
)

// reload has HAProxy load a configuration: new workers take over the listening sockets, and the old ones end with their
// connections. If that fails, the old workers serve on, and the previous file is restored.
func (e *engine) reload(ctx context.Context, c *candidate) error {
	before, whole, next := e.running.Rendering, e.running.Complete, e.running.Next
	ctx = context.WithoutCancel(ctx) // a change that has begun is finished
	e.readAllCounts(ctx)             // the counts of a worker that ends soon
	e.running.Complete, e.running.Next = false, nil
	if err := errors.Join(e.save(), e.write(c)); err != nil {
		// HAProxy was not signalled: changes of servers alone need no reload still.
		e.running.Complete, e.running.Next = whole, next
		return errors.Join(err, e.writeFile(before))
	}
	if err := e.reloadAndWait(ctx, c.rendering); err != nil {
		// If it has ended, the watch starts another, with the previous configuration. If it does not answer, its
		// configuration is not known.
		if errors.Is(err, errUnchanged) {
			e.running.Complete, e.running.Next = whole, next
		}
		return errors.Join(c.rendering.startError(err), e.writeFile(before), e.save())
	}
	e.running.Rendering, e.running.Draining, e.running.Complete = c.rendering, nil, true
	e.running.Served, e.running.Authorities = c.served(), c.authoritySums()
	e.running.Program, e.running.Version = c.program.path, c.program.version
	e.setServedCertificates()
	e.removeUnused()
	return e.save()
}

// reloadAndWait asks for a reload, and waits until new workers serve with a rendering.
func (e *engine) reloadAndWait(ctx context.Context, r *Rendering) error {
	ctx, cancel := context.WithTimeout(ctx, ServeTimeout)
	defer cancel()
	before, err := e.socket.Processes(ctx)
	if err != nil {
		return fmt.Errorf("reloading HAProxy: %w", err)
	}
	var clients map[string]master.StickTable
	if len(before.Workers) > 0 {
		clients = e.readPersistence(ctx, before.Workers[0])
	}
	held, release := e.holdWorker(ctx, before.Workers), true
	defer func() {
		if release {
			e.releaseWorker(held)
		}
	}()
	e.truncateMessages()
	// The master answers from 2.7 on; before, it ends the connection.
	if _, err := e.socket.Command(ctx, "reload"); err != nil && ctx.Err() != nil {
		return fmt.Errorf("reloading HAProxy: %w", err)
	}
	for {
		now, err := e.socket.Processes(ctx)
		switch {
		case err != nil && !e.running.Master.IsRunning():
			return fmt.Errorf("reloading HAProxy: %w%s", errExited, e.readAlerts())
		case err == nil && now.Failed > 0 && now.Reloads+now.Failed > before.Reloads+before.Failed:
			return fmt.Errorf("reloading HAProxy: %w%s", errUnchanged, e.readAlerts())
		case err == nil && now.Reloads > before.Reloads && e.workerReady(ctx, now, before.Workers):
			e.recordWorkers(now)
			e.writePersistence(ctx, now.Workers[0], r, clients)
			e.awaitOldWorkers(ctx, before.Workers)
			release = false
			e.readFinalCounts(held, e.running.Rendering.HardStop)
			return nil
		}
		if err := clock.Sleep(ctx, servePoll); err != nil {
			return fmt.Errorf("reloading HAProxy: new workers do not serve: %w%s", err, e.readAlerts())
		}
	}
}

// workerReady reports whether there is a new worker, and whether it serves.
func (e *engine) workerReady(ctx context.Context, p master.Processes, previous []int) bool {
	for _, pid := range p.Workers {
		if slices.Contains(previous, pid) {
			return false
		}
		answer, err := e.socket.WorkerCommand(ctx, pid, "show info")
		if err != nil || !strings.Contains(answer, fmt.Sprintf("\nPid: %d\n", pid)) {
			return false
		}
	}
	return len(p.Workers) > 0
}

// awaitOldWorkers waits until workers that were replaced accept no connections any more. They are signalled before the
// new ones start, and share the listening sockets until they handle the signal: on a busy host, a client that connected
// after the reload could get the previous configuration. A worker that does not react ends by its hard stop.
func (e *engine) awaitOldWorkers(ctx context.Context, old []int) {
	ctx, cancel := context.WithTimeout(ctx, drainListenTimeout)
	defer cancel()
	for _, pid := range old {
		for e.listens(ctx, pid) {
			if clock.Sleep(ctx, servePoll) != nil {
				e.log.Warn("a worker of HAProxy's that a reload has replaced still accepts connections", "pid", pid)
				return
			}
		}
	}
}

// listens reports whether a worker accepts connections: it has listening sockets besides that of its master, which it
// keeps to its end.
func (e *engine) listens(ctx context.Context, pid int) bool {
	answer, err := e.socket.WorkerCommand(ctx, pid, "show info")
	if err != nil {
		return ctx.Err() != nil // else it has ended
	}
	info := master.ParseInfo(answer)
	return info["Pid"] == pid && info["Listeners"] > info["Unstoppable Jobs"]
}

// truncateMessages empties the file of HAProxy's messages.
func (e *engine) truncateMessages() { os.Truncate(e.host.messages(), 0) }

// readAlerts returns HAProxy's alerts, which say why it cannot go on.
func (e *engine) readAlerts() string {
	contents, err := os.ReadFile(e.host.messages())
	if err != nil {
		return ""
	}
	var said []string
	for text := range strings.Lines(string(contents)) {
		if found := alerts.FindStringSubmatch(strings.TrimRight(text, "\n")); found != nil &&
			!slices.Contains(said, found[1]) {
			said = append(said, found[1])
		}
	}
	if len(said) == 0 {
		return ""
	}
	return ": " + oneLine(strings.Join(said, "; "))
}

// startError adds to an error of a start or a reload the place that it is about.
func (r *Rendering) startError(err error) error {
	at, _ := r.sectionPlace(err.Error())
	return at.wrap(err)
}

// readPersistence reads the persistence tables of a worker that is about to be replaced, by section. With HAProxy's own
// means, a section "peers", a worker without connections ends before it has sent its table to the next one (2.6.12).
func (e *engine) readPersistence(ctx context.Context, worker int) map[string]master.StickTable {
	all := map[string]master.StickTable{}
	for _, b := range e.running.Rendering.Blocks {
		if !b.Persistent {
			continue
		}
		clients, err := e.socket.ReadTable(ctx, worker, b.Pool)
		if err != nil {
			e.log.Error("clients' persistence could not be read before HAProxy was reloaded", "section", b.Pool,
				"because", err)
			continue
		}
		all[b.Pool] = clients
	}
	return all
}

// writePersistence writes the tables of readPersistence to a new worker, for the sections that still exist.
func (e *engine) writePersistence(ctx context.Context, worker int, r *Rendering, all map[string]master.StickTable) {
	for _, b := range r.Blocks {
		if !b.Persistent || len(all[b.Pool]) == 0 {
			continue
		}
		if err := e.socket.WriteTable(ctx, worker, b.Pool, all[b.Pool]); err != nil {
			e.log.Error("clients' persistence could not be handed over after HAProxy was reloaded", "section", b.Pool,
				"because", err)
		}
	}
}
