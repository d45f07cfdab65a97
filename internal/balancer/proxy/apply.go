// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// Apply brings the engine to the desired state; see Engine.
func (e *engine) Apply(ctx context.Context, d Desired) error {
	back, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer back()
	if e.ended {
		return ErrEnded
	}
	if len(d.Services) == 0 {
		return e.stopProxy(ctx)
	}
	c, err := e.prepare(ctx, d)
	if err != nil {
		return err
	}
	runs := e.running != nil && e.running.Master.IsRunning()
	e.keepProgram(ctx, c, runs)
	if runs && !e.running.Complete {
		e.resumeChange(ctx)
	}
	if runs && e.running.Complete {
		// HAProxy does not check a change of servers alone beforehand.
		if steps, possible := compareRenderings(e.running.Rendering, c.rendering, e.running.Draining); possible {
			return e.changeLive(ctx, c, steps)
		}
	}
	if err := checkPorts(d); err != nil {
		return err
	}
	if err := e.validate(ctx, d, c); err != nil {
		return err
	}
	if !runs {
		return e.startWith(ctx, c)
	}
	return e.reload(ctx, c)
}

// startWith starts HAProxy with a configuration. If that fails, the next start is with the previous one.
func (e *engine) startWith(ctx context.Context, c *candidate) error {
	before := e.running
	if err := e.write(c); err != nil {
		return errors.Join(err, e.restoreConfig(before))
	}
	e.running = &savedState{Rendering: c.rendering, Program: c.program.path, Version: c.program.version,
		Served: c.served(), Authorities: c.authoritySums()}
	if before != nil {
		e.running.Workers = before.Workers
	}
	if err := e.start(ctx); err != nil {
		failed := c.rendering.startError(err)
		e.running = before
		return errors.Join(failed, e.restoreConfig(before))
	}
	e.deaths = 0
	e.removeUnused()
	return nil
}

// restoreConfig writes the previous configuration again, or removes the written one where there was none.
func (e *engine) restoreConfig(before *savedState) error {
	if before != nil {
		return e.writeFile(before.Rendering)
	}
	if err := e.config.Save(nil); err != nil && !durable.Unwritable(err) {
		return fmt.Errorf("removing a configuration that HAProxy does not start with: %v", err)
	}
	return nil
}

// changeLive changes a running HAProxy to a configuration by commands to its worker, or by a reload if a command fails.
// The file is written first, so that a HAProxy that is restarted after a crash reads the desired configuration. If the
// file cannot be written, the commands are sent nevertheless.
func (e *engine) changeLive(ctx context.Context, c *candidate, s *steps) error {
	commands := s.commands()
	if len(commands) == 0 {
		e.running.Rendering = c.rendering // the same text, but for the places that lines come from
		return nil
	}
	if err := e.markPending(c.rendering); err != nil {
		return err
	}
	// From here on the change is finished even if the caller is gone: HAProxy must not keep half of it.
	ctx = context.WithoutCancel(ctx)
	if err := e.runCommands(ctx, commands); err != nil {
		e.log.Info("HAProxy does not take a change at its socket: reloading it", "because", err)
		return e.reload(ctx, c)
	}
	e.markApplied(c.rendering, s)
	return e.save()
}

// markApplied records that HAProxy has the configuration that the steps lead to.
func (e *engine) markApplied(r *Rendering, s *steps) {
	e.running.Rendering, e.running.Draining, e.running.Complete, e.running.Next = r, s.draining, true, nil
}

// resumeChange repeats the commands of an interrupted change, of which HAProxy may have executed any. Otherwise the
// next change would need a reload, and thus a file: a process that was killed while the disk was full could not be
// started again.
func (e *engine) resumeChange(ctx context.Context) {
	if e.running.Next == nil {
		return
	}
	next := e.running.Next
	if err := e.applyDifference(context.WithoutCancel(ctx), e.running.Rendering, next, e.running.Draining); err != nil {
		e.log.Info("HAProxy does not take the rest of a change that was cut short: reloading it", "because", err)
		return
	}
	e.unwritten = !isFile(e.host.file(), []byte(next.String()))
}

// errNeedsReload: commands cannot make a change.
var errNeedsReload = errors.New("it is no change of servers alone")

// applyDifference changes HAProxy from one rendering to another without a reload, by commands of which it may have
// executed some.
func (e *engine) applyDifference(ctx context.Context, from, to *Rendering, left map[string]Server) error {
	s, possible := compareRenderings(from, to, left)
	if !possible {
		return errNeedsReload
	}
	commands := s.commands()
	for i := range commands {
		commands[i].success = append(commands[i].success, commands[i].repeated...)
	}
	if err := e.runCommands(ctx, commands); err != nil {
		return err
	}
	e.markApplied(to, s)
	return nil
}

// markPending writes a configuration, and records that HAProxy does not have it yet. A HAProxy that runs needs no
// file.
func (e *engine) markPending(r *Rendering) error {
	e.running.Complete, e.running.Next = false, r
	if err := e.save(); err != nil {
		return err
	}
	if err := e.writeFile(r); err != nil && !durable.Unwritable(err) {
		return err
	}
	return nil
}

// runCommands has the worker run commands.
func (e *engine) runCommands(ctx context.Context, commands []step) error {
	worker, err := e.currentWorker(ctx)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if err := e.socket.RunWorkerCommand(ctx, worker, c.command, c.success...); err != nil {
			return err
		}
	}
	return nil
}

// errNoWorker: the master is about to end, too.
var errNoWorker = errors.New("HAProxy's master has no worker that takes connections")

// currentWorker returns the process that takes new connections.
func (e *engine) currentWorker(ctx context.Context) (int, error) {
	all, err := e.socket.Processes(ctx)
	if err != nil {
		return 0, err
	}
	if len(all.Workers) == 0 {
		return 0, errNoWorker
	}
	return all.Workers[0], nil
}

// deleteServers deletes servers whose connections have ended.
func (e *engine) deleteServers(ctx context.Context, worker int) {
	changed := false
	for _, name := range sortedKeys(e.running.Draining) {
		err := e.socket.RunWorkerCommand(ctx, worker, "del server "+name, deleted)
		if err != nil && !errors.Is(err, master.ErrCommand) {
			return // the worker is gone: another look comes
		}
		if err == nil {
			delete(e.running.Draining, name)
			changed = true
		}
	}
	if changed {
		if err := e.save(); err != nil {
			e.log.Error("the proxy engine's state could not be kept", "because", err)
		}
	}
}
