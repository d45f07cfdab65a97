// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	// tending is how often HAProxy's processes, counts and left servers are looked at.
	tending = 5 * time.Second
	// mostSaid bounds the file of HAProxy's messages, in bytes.
	mostSaid = 1 << 20
)

// tend looks after a HAProxy that runs, until the watch ends.
func (e *engine) tend() {
	ticker := time.NewTicker(tending)
	defer ticker.Stop()
	for {
		select {
		case <-e.watch.Done():
			return
		case <-ticker.C:
			e.look()
		}
	}
}

// look looks at the process once.
func (e *engine) look() {
	back, err := e.take(e.watch)
	if err != nil {
		return
	}
	defer back()
	if e.ended || e.kept == nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.watch, tending)
	defer cancel()
	now, err := e.socket.Processes(ctx)
	if err != nil {
		return // it has ended, which is noticed elsewhere
	}
	e.workers(now)
	e.gather(ctx)
	e.counts.forget(e.kept.Rendering)
	if len(now.Workers) > 0 && len(e.kept.Left) > 0 {
		e.delete(ctx, now.Workers[0])
	}
	if info, err := os.Stat(e.host.messages()); err == nil && info.Size() > mostSaid {
		e.forgetMessages()
	}
}

// adopt goes on with a HAProxy that another engine of the directory has left. One that it cannot go on with, it ends:
// the first change starts another.
func (e *engine) adopt() {
	k, err := e.load()
	if err != nil {
		e.log.Error("what HAProxy runs with is not known: the first change starts another", "because", err)
	}
	if k == nil {
		return
	}
	e.counts.load(e.host.counts())
	if !k.Master.Runs() {
		e.retire(k.Workers, k.Rendering.HardStop)
		return
	}
	e.kept = k
	ctx, cancel := context.WithTimeout(e.watch, endBound)
	defer cancel()
	now, err := e.socket.Processes(ctx)
	if err == nil && now.Master != k.Master.PID {
		err = errors.New("another process answers at its socket")
	}
	if err != nil {
		e.log.Error("HAProxy does not answer: it is ended, and the first change starts another", "pid", k.Master.PID,
			"because", err)
		e.end(ctx, k.Master)
		e.endWorkers(k.Workers)
		e.kept = nil
		return
	}
	contents, err := os.ReadFile(e.host.file())
	e.unwritten = err != nil || string(contents) != k.Rendering.String()
	k.Whole = k.Whole && (k.Unfiled || !e.unwritten)
	e.lived = time.Now()
	e.workers(now)
	e.follow()
	e.log.Info("HAProxy serves on", "pid", k.Master.PID, "since", k.Began)
}

// Leave ends the engine's watch; see Engine.
func (e *engine) Leave() error {
	back, err := e.take(context.Background())
	if err != nil {
		return err
	}
	defer func() { e.unwatch(); back(); e.watching.Wait() }()
	if e.ended {
		return nil
	}
	e.ended = true
	if e.kept == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	e.gather(ctx) // before the watch ends, which lets workers go
	return e.save()
}

// Stop ends HAProxy, and removes its files; see Engine.
func (e *engine) Stop(ctx context.Context) error {
	back, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer func() { back(); e.watching.Wait() }()
	if e.ended {
		return nil
	}
	e.ended = true
	e.unwatch()
	if e.unsupported != nil {
		return nil // nothing was put there
	}
	return errors.Join(e.halt(ctx), e.remove())
}
