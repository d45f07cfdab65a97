// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/balancer/proxy/process"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/durable"
)

const (
	// backoffReset is how long HAProxy must run for the backoff to start anew.
	backoffReset = 30 * time.Second
	// minBackoff is the wait before the third start in a row; it doubles from there, up to maxBackoff.
	minBackoff, maxBackoff = 500 * time.Millisecond, 30 * time.Second
	// endTimeout is how long a process has to end after a signal that it can catch.
	endTimeout = 5 * time.Second
)

// start starts HAProxy with the file that is written, and waits until it serves.
func (e *engine) start(ctx context.Context) error {
	e.running.Workers = e.retireWorkers(e.running.Workers, e.running.Rendering.HardStop)
	if e.unwritten {
		_ = e.writeFile(e.running.Rendering) // on an error, the older file is used, and catchUp makes up for it
	}
	messages, err := os.OpenFile(e.host.messages(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if durable.Unwritable(err) { // its messages are lost
		messages, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return fmt.Errorf("starting HAProxy: %v", err)
	}
	defer messages.Close()
	cmd := exec.Command(e.running.Program, "-W", "-S", e.host.master()+",mode,600,level,admin", "-f", e.host.file())
	cmd.Env, cmd.Dir = environment(), "/"
	cmd.Stdout, cmd.Stderr = messages, messages
	// It outlives this process, and gets no signals to this one's group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting HAProxy: %v", err)
	}
	go cmd.Wait() // this process must reap it; supervise notices its end as that of an adopted process
	e.running.Master, err = process.Of(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM) // unless it has ended: nothing could watch or end it later
		if !process.HasEnded(err) {
			return fmt.Errorf("starting HAProxy: %w", err)
		}
		return fmt.Errorf("starting HAProxy: %w%s", errExited, e.readAlerts())
	}
	e.running.Started, e.startedAt = time.Now(), time.Now()
	if err := errors.Join(e.save(), e.awaitServing(ctx)); err != nil {
		e.end(context.Background(), e.running.Master)
		return err
	}
	e.running.Complete = !e.unwritten || e.catchUp(ctx)
	e.supervise()
	return e.save()
}

// catchUp changes a HAProxy that was started with an older file to the desired configuration, and reports whether it
// could.
func (e *engine) catchUp(ctx context.Context) bool {
	return e.filed != nil && e.applyDifference(ctx, e.filed, e.running.Rendering, nil) == nil
}

// awaitServing waits until a HAProxy that was started serves.
func (e *engine) awaitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ServeTimeout)
	defer cancel()
	for {
		if !e.running.Master.IsRunning() {
			return fmt.Errorf("starting HAProxy: %w%s", errExited, e.readAlerts())
		}
		now, err := e.socket.Processes(ctx)
		if err == nil && now.Master == e.running.Master.PID && e.workerReady(ctx, now, nil) {
			e.recordWorkers(now)
			return nil
		}
		if err := clock.Sleep(ctx, servePoll); err != nil {
			return fmt.Errorf("starting HAProxy: it does not serve: %w%s", err, e.readAlerts())
		}
	}
}

// supervise watches the HAProxy that runs, until it ends.
func (e *engine) supervise() {
	id := e.running.Master
	e.updateState(func() {
		e.state.PID, e.state.Started, e.downReason = id.PID, e.running.Started, ""
		e.state.Program, e.state.Version = e.running.Program, e.running.Version
	})
	e.setServedCertificates()
	e.watching.Go(func() {
		if err := id.Wait(e.watch); err == nil {
			e.restart(id)
		} else if e.watch.Err() == nil {
			e.log.Error("HAProxy is not watched any more: its end would not be noticed", "pid", id.PID, "because", err)
		}
	})
}

// restart starts HAProxy again: at once, and if it keeps dying, after growing pauses.
func (e *engine) restart(id process.ID) {
	for {
		back, err := e.lock(e.watch)
		if err != nil {
			return
		}
		if e.ended || e.running == nil || e.running.Master != id {
			back()
			return // it was ended, or another one was started
		}
		if time.Since(e.startedAt) > backoffReset {
			e.deaths = 0
		}
		e.deaths++
		delay := backoff(e.deaths)
		why := "HAProxy ended unexpectedly" + e.readAlerts()
		e.updateState(func() { e.state.PID, e.state.Workers, e.downReason = 0, 0, why })
		e.log.Error("HAProxy ended: starting it again", "pid", id.PID, "after", delay, "because", why)
		e.retireWorkers(e.running.Workers, e.running.Rendering.HardStop)
		back()
		if clock.Sleep(e.watch, delay) != nil {
			return
		}
		if e.startAgain(id) {
			return
		}
	}
}

// startAgain starts HAProxy in the place of one that has ended, and reports whether it need not be tried again.
func (e *engine) startAgain(id process.ID) bool {
	back, err := e.lock(e.watch)
	if err != nil {
		return true
	}
	defer back()
	if e.ended || e.running == nil || e.running.Master != id {
		return true
	}
	if err := e.start(e.watch); err != nil {
		// Another master than this one shows that a change was made meanwhile.
		e.running.Master = id
		e.updateState(func() { e.downReason = "HAProxy does not start: " + err.Error() })
		return false
	}
	e.log.Info("HAProxy serves again", "pid", e.running.Master.PID)
	return true
}

// backoff returns how long is waited after so many deaths in a row.
func backoff(deaths int) time.Duration {
	if deaths <= 1 {
		return 0
	}
	return min(minBackoff<<min(deaths-2, 16), maxBackoff)
}

// recordWorkers records the master's workers, which must be ended if the master is killed.
func (e *engine) recordWorkers(p master.Processes) {
	var ids []process.ID
	for _, pid := range append(p.Workers, p.Old...) {
		if id, err := process.Of(pid); err == nil {
			ids = append(ids, id)
		}
	}
	e.running.Workers = ids
	e.updateState(func() { e.state.Reloads, e.state.Workers = p.Reloads, len(ids) })
}

// retireWorkers has workers without a master accept no new connections and end with their last one, within a bound. By
// themselves they would go on, and share the ports with the next workers. It returns those that could not be told so.
func (e *engine) retireWorkers(workers []process.ID, bound time.Duration) (left []process.ID) {
	for _, w := range workers {
		if !w.IsRunning() {
			continue
		}
		if err := w.Signal(syscall.SIGUSR1); err != nil {
			e.log.Error("a worker of HAProxy's could not be told to end", "pid", w.PID, "because", err)
			left = append(left, w)
			continue
		}
		e.watching.Go(func() {
			ctx, cancel := context.WithTimeout(e.watch, bound+endTimeout)
			defer cancel()
			if w.Wait(ctx) != nil && e.watch.Err() == nil {
				e.kill(w)
			}
		})
	}
	return left
}

// endWorkers ends workers at once.
func (e *engine) endWorkers(workers []process.ID) {
	for _, w := range workers {
		if w.IsRunning() {
			e.kill(w)
		}
	}
}

// kill ends a process at once.
func (e *engine) kill(id process.ID) {
	if err := id.Signal(syscall.SIGKILL); err != nil {
		e.log.Error("a process of HAProxy could not be ended", "because", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := id.Wait(ctx); err != nil {
		e.log.Error("a process of HAProxy does not end", "pid", id.PID, "because", err)
	}
}

// end ends a master, which ends its workers, and kills it if it does not react.
func (e *engine) end(ctx context.Context, id process.ID) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := errors.Join(id.Signal(syscall.SIGTERM), id.Wait(ctx)); err != nil {
		e.kill(id)
	}
}

// stopProxy ends HAProxy, and removes its saved state.
func (e *engine) stopProxy(ctx context.Context) error {
	if e.running == nil {
		return nil
	}
	e.readAllCounts(ctx)
	workers, id := e.running.Workers, e.running.Master
	e.running = nil
	e.end(ctx, id)
	e.endWorkers(workers)
	for _, path := range []string{e.host.file(), e.host.state(), e.host.socket(), e.host.master()} {
		os.Remove(path) // a file that stays is replaced at the next start
	}
	e.updateState(func() {
		e.state = State{Version: e.state.Version, Program: e.state.Program}
		e.servedCertificates, e.downReason, e.renewProblem, e.programProblem = nil, "", "", ""
	})
	return nil
}

// setServedCertificates has State list the certificates that are served.
func (e *engine) setServedCertificates() {
	certificates := e.running.Served
	e.updateState(func() { e.servedCertificates, e.renewProblem = certificates, "" })
}
