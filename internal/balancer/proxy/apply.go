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
	back, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer back()
	if e.ended {
		return ErrEnded
	}
	if len(d.Services) == 0 {
		return e.halt(ctx)
	}
	c, err := e.prepare(ctx, d)
	if err != nil {
		return err
	}
	runs := e.kept != nil && e.kept.Master.Runs()
	if runs && !e.kept.Whole {
		e.finish(ctx)
	}
	if runs && e.kept.Whole {
		// Of servers alone, there is nothing for HAProxy to judge beforehand.
		if steps, can := plan(e.kept.Rendering, c.rendering, e.kept.Left); can {
			return e.command(ctx, c, steps)
		}
	}
	if err := mayBind(d); err != nil {
		return err
	}
	if err := e.judge(ctx, d, c); err != nil {
		return err
	}
	if !runs {
		return e.begin(ctx, c)
	}
	return e.reload(ctx, c)
}

// begin starts HAProxy with a configuration. If that fails, the next start is with the one before.
func (e *engine) begin(ctx context.Context, c *candidate) error {
	before := e.kept
	if err := e.write(c); err != nil {
		return errors.Join(err, e.restore(before))
	}
	e.kept = &kept{Rendering: c.rendering, Program: c.program.path, Version: c.program.version, Served: c.served()}
	if before != nil {
		e.kept.Workers = before.Workers
	}
	if err := e.start(ctx); err != nil {
		failed := c.rendering.started(err)
		e.kept = before
		return errors.Join(failed, e.restore(before))
	}
	e.deaths = 0
	e.tidy()
	return nil
}

// restore writes the former configuration again, or removes the written one where there was none.
func (e *engine) restore(before *kept) error {
	if before != nil {
		return e.writeFile(before.Rendering)
	}
	if err := e.config.Save(nil); err != nil && !durable.Unwritable(err) {
		return fmt.Errorf("removing a configuration that HAProxy does not start with: %v", err)
	}
	return nil
}

// command brings a running HAProxy to a configuration by commands to its worker, and where one fails by a reload. The
// file is written first: a HAProxy that starts after a crash has the wanted configuration. Where the file cannot be
// written, the commands are given all the same.
func (e *engine) command(ctx context.Context, c *candidate, s *steps) error {
	commands := s.all()
	if len(commands) == 0 {
		e.kept.Rendering = c.rendering // the same text, but for the places that lines come from
		return nil
	}
	if err := e.unfinished(c.rendering); err != nil {
		return err
	}
	// Half of a change would be neither: from here on it is finished, even if the caller is gone.
	ctx = context.WithoutCancel(ctx)
	if err := e.run(ctx, commands); err != nil {
		e.log.Info("HAProxy does not take a change at its socket: reloading it", "because", err)
		return e.reload(ctx, c)
	}
	e.finished(c.rendering, s)
	return e.save()
}

// finished notes that HAProxy has the configuration that the steps lead to.
func (e *engine) finished(r *Rendering, s *steps) {
	e.kept.Rendering, e.kept.Left, e.kept.Whole, e.kept.Next = r, s.left, true, nil
}

// finish gives the commands of a change again that was cut short, for HAProxy may have had any of them. Without it, the
// next change would need a reload, and thus a file: a process that was killed while the disk was full could not be
// started again.
func (e *engine) finish(ctx context.Context) {
	if e.kept.Next == nil {
		return
	}
	next := e.kept.Next
	if err := e.bring(context.WithoutCancel(ctx), e.kept.Rendering, next, e.kept.Left); err != nil {
		e.log.Info("HAProxy does not take the rest of a change that was cut short: reloading it", "because", err)
		return
	}
	e.unwritten = !isFile(e.host.file(), []byte(next.String()))
}

// errCommands: a change is more than commands can make of a running HAProxy.
var errCommands = errors.New("it is no change of servers alone")

// bring has HAProxy become from one rendering another by commands, of which it may have had some, without a reload.
func (e *engine) bring(ctx context.Context, from, to *Rendering, left map[string]Server) error {
	s, can := plan(from, to, left)
	if !can {
		return errCommands
	}
	commands := s.all()
	for i := range commands {
		commands[i].fine = append(commands[i].fine, commands[i].done...)
	}
	if err := e.run(ctx, commands); err != nil {
		return err
	}
	e.finished(to, s)
	return nil
}

// unfinished writes a configuration, and notes that HAProxy does not have it yet. A HAProxy that runs needs no file.
func (e *engine) unfinished(r *Rendering) error {
	e.kept.Whole, e.kept.Next = false, r
	if err := e.save(); err != nil {
		return err
	}
	if err := e.writeFile(r); err != nil && !durable.Unwritable(err) {
		return err
	}
	return nil
}

// run has the worker do commands.
func (e *engine) run(ctx context.Context, commands []step) error {
	worker, err := e.worker(ctx)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if err := e.socket.Do(ctx, worker, c.command, c.fine...); err != nil {
			return err
		}
	}
	return nil
}

// errNoWorker: the master is about to end, too.
var errNoWorker = errors.New("HAProxy's master has no worker that takes connections")

// worker returns the process that takes new connections.
func (e *engine) worker(ctx context.Context) (int, error) {
	all, err := e.socket.Processes(ctx)
	if err != nil {
		return 0, err
	}
	if len(all.Workers) == 0 {
		return 0, errNoWorker
	}
	return all.Workers[0], nil
}

// delete deletes servers whose connections have ended.
func (e *engine) delete(ctx context.Context, worker int) {
	changed := false
	for _, name := range sortedKeys(e.kept.Left) {
		err := e.socket.Do(ctx, worker, "del server "+name, deleted)
		if err != nil && !errors.Is(err, master.ErrCommand) {
			return // the worker is gone: another look comes
		}
		if err == nil {
			delete(e.kept.Left, name)
			changed = true
		}
	}
	if changed {
		if err := e.save(); err != nil {
			e.log.Error("the proxy engine's state could not be kept", "because", err)
		}
	}
}
