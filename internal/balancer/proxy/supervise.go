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
	// calm is how long HAProxy must have lived for its next death to be a first one.
	calm = 30 * time.Second
	// firstDelay is waited before the third start in a row; it doubles from there, up to lastDelay.
	firstDelay, lastDelay = 500 * time.Millisecond, 30 * time.Second
	// endBound is how long a process has to end after a signal that it can catch.
	endBound = 5 * time.Second
)

// start starts HAProxy with the file that is written, and waits until it serves.
func (e *engine) start(ctx context.Context) error {
	e.retire(e.kept.Workers, e.kept.Rendering.HardStop)
	e.kept.Workers = nil
	if e.unwritten {
		_ = e.writeFile(e.kept.Rendering) // or the file is older: servers have changed since
	}
	messages, err := os.OpenFile(e.host.messages(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if durable.Unwritable(err) { // its messages are lost
		messages, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return fmt.Errorf("starting HAProxy: %v", err)
	}
	defer messages.Close()
	cmd := exec.Command(e.kept.Program, "-W", "-S", e.host.master()+",mode,600,level,admin", "-f", e.host.file())
	cmd.Env, cmd.Dir = environment(), "/"
	cmd.Stdout, cmd.Stderr = messages, messages
	// It outlives this process, and gets no signals to this one's group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting HAProxy: %v", err)
	}
	go cmd.Wait() // it is this process that must reap it; its end is noticed as that of an adopted one is
	e.kept.Master, err = process.Of(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("starting HAProxy: %w%s", errGone, e.said())
	}
	e.kept.Began, e.lived = time.Now(), time.Now()
	if err := errors.Join(e.save(), e.begun(ctx)); err != nil {
		e.end(context.Background(), e.kept.Master)
		return err
	}
	e.kept.Whole = !e.unwritten || e.catchUp(ctx)
	e.follow()
	return e.save()
}

// catchUp brings a HAProxy that was started with an older file to the configuration wanted since, and says whether it
// has it.
func (e *engine) catchUp(ctx context.Context) bool {
	return e.filed != nil && e.bring(ctx, e.filed, e.kept.Rendering, nil) == nil
}

// begun waits until a HAProxy that was started serves.
func (e *engine) begun(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serveBound)
	defer cancel()
	for {
		if !e.kept.Master.Runs() {
			return fmt.Errorf("starting HAProxy: %w%s", errGone, e.said())
		}
		now, err := e.socket.Processes(ctx)
		if err == nil && now.Master == e.kept.Master.PID && e.answers(ctx, now, nil) {
			e.workers(now)
			return nil
		}
		if err := clock.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("starting HAProxy: it does not serve: %w%s", err, e.said())
		}
	}
}

// follow watches the HAProxy that runs, until it ends.
func (e *engine) follow() {
	id := e.kept.Master
	e.note(func() {
		e.state.PID, e.state.Started, e.down = id.PID, e.kept.Began, ""
		e.state.Program, e.state.Version = e.kept.Program, e.kept.Version
	})
	e.show()
	e.watching.Go(func() {
		if err := id.Wait(e.watch); err == nil {
			e.died(id)
		}
	})
}

// died starts HAProxy again: at once, and if it keeps dying after pauses that grow.
func (e *engine) died(id process.ID) {
	for {
		back, err := e.take(e.watch)
		if err != nil {
			return
		}
		if e.ended || e.kept == nil || e.kept.Master != id {
			back()
			return // it was ended, or another one was started
		}
		if time.Since(e.lived) > calm {
			e.deaths = 0
		}
		e.deaths++
		delay := delayOf(e.deaths)
		why := "HAProxy ended unexpectedly" + e.said()
		e.note(func() { e.state.PID, e.state.Workers, e.down = 0, 0, why })
		e.log.Error("HAProxy ended: starting it again", "pid", id.PID, "after", delay, "because", why)
		e.retire(e.kept.Workers, e.kept.Rendering.HardStop)
		back()
		if clock.Sleep(e.watch, delay) != nil {
			return
		}
		if e.again(id) {
			return
		}
	}
}

// again starts HAProxy in the place of one that has ended, and says whether it need not be tried again.
func (e *engine) again(id process.ID) bool {
	back, err := e.take(e.watch)
	if err != nil {
		return true
	}
	defer back()
	if e.ended || e.kept == nil || e.kept.Master != id {
		return true
	}
	if err := e.start(e.watch); err != nil {
		// The one that has just died stands for the next that does: a change made meanwhile is noticed.
		e.kept.Master = id
		e.note(func() { e.down = "HAProxy does not start: " + err.Error() })
		return false
	}
	e.log.Info("HAProxy serves again", "pid", e.kept.Master.PID)
	return true
}

// delayOf returns how long is waited after so many deaths in a row.
func delayOf(deaths int) time.Duration {
	if deaths <= 1 {
		return 0
	}
	return min(firstDelay<<min(deaths-2, 16), lastDelay)
}

// workers notes the master's processes: those that it leaves must be ended if it is killed.
func (e *engine) workers(p master.Processes) {
	var ids []process.ID
	for _, pid := range append(p.Workers, p.Old...) {
		if id, err := process.Of(pid); err == nil {
			ids = append(ids, id)
		}
	}
	e.kept.Workers = ids
	e.note(func() { e.state.Reloads, e.state.Workers = p.Reloads, len(ids) })
}

// retire has workers whose master is gone take no new connection and end with those that they have, within a bound.
// HAProxy's own workers go on instead, and would share the ports with the next ones.
func (e *engine) retire(workers []process.ID, bound time.Duration) {
	for _, w := range workers {
		if !w.Runs() {
			continue
		}
		if err := w.Signal(syscall.SIGUSR1); err != nil {
			e.kill(w)
			continue
		}
		e.watching.Go(func() {
			ctx, cancel := context.WithTimeout(e.watch, bound+endBound)
			defer cancel()
			if w.Wait(ctx) != nil && e.watch.Err() == nil {
				e.kill(w)
			}
		})
	}
}

// endWorkers ends workers at once.
func (e *engine) endWorkers(workers []process.ID) {
	for _, w := range workers {
		if w.Runs() {
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
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	if err := id.Wait(ctx); err != nil {
		e.log.Error("a process of HAProxy does not end", "pid", id.PID, "because", err)
	}
}

// end ends a master, which ends its workers, and kills it if it does not react.
func (e *engine) end(ctx context.Context, id process.ID) {
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	if err := errors.Join(id.Signal(syscall.SIGTERM), id.Wait(ctx)); err != nil {
		e.kill(id)
	}
}

// halt ends HAProxy, and forgets its configuration.
func (e *engine) halt(ctx context.Context) error {
	if e.kept == nil {
		return nil
	}
	e.gather(ctx)
	workers, id := e.kept.Workers, e.kept.Master
	e.kept = nil
	e.end(ctx, id)
	e.endWorkers(workers)
	for _, path := range []string{e.host.file(), e.host.state(), e.host.socket(), e.host.master()} {
		os.Remove(path) // a missing file need not go, and one that stays is replaced
	}
	e.note(func() {
		e.state = State{Version: e.state.Version, Program: e.state.Program}
		e.shown, e.down, e.broken = nil, "", ""
	})
	return nil
}

// show has State list the certificates that are served.
func (e *engine) show() {
	certificates := e.kept.Served
	e.note(func() { e.shown, e.broken = certificates, "" })
}
