// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	// maintainInterval is the interval of checks of HAProxy's processes, counts and draining servers.
	maintainInterval = 5 * time.Second
	// maxMessages bounds the file of HAProxy's messages, in bytes.
	maxMessages = 1 << 20
)

// maintain calls maintainOnce at intervals, until the watch ends.
func (e *engine) maintain() {
	ticker := time.NewTicker(maintainInterval)
	defer ticker.Stop()
	for {
		select {
		case <-e.watch.Done():
			return
		case <-ticker.C:
			e.maintainOnce()
		}
	}
}

// maintainOnce reads the state of the process once.
func (e *engine) maintainOnce() {
	back, err := e.lock(e.watch)
	if err != nil {
		return
	}
	defer back()
	if e.ended || e.running == nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.watch, maintainInterval)
	defer cancel()
	now, err := e.socket.Processes(ctx)
	if err != nil {
		return // it has ended, which is noticed elsewhere
	}
	e.recordWorkers(now)
	e.readAllCounts(ctx)
	e.counts.prune(e.running.Rendering)
	if len(now.Workers) > 0 && len(e.running.Draining) > 0 {
		e.deleteServers(ctx, now.Workers[0])
	}
	if info, err := os.Stat(e.host.messages()); err == nil && info.Size() > maxMessages {
		e.truncateMessages()
	}
}

// adopt takes over a HAProxy that another engine of the directory has left. If it cannot, it ends that HAProxy, and the
// first change starts another.
func (e *engine) adopt() {
	k, err := e.load()
	if err != nil {
		e.log.Error("what HAProxy runs with is not known: the first change starts another", "because", err)
	}
	if k == nil {
		return
	}
	e.counts.load(e.host.counts())
	if !k.Master.IsRunning() {
		e.retireWorkers(k.Workers, k.Rendering.HardStop)
		return
	}
	e.running = k
	ctx, cancel := context.WithTimeout(e.watch, endTimeout)
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
		e.running = nil
		return
	}
	contents, err := os.ReadFile(e.host.file())
	e.unwritten = err != nil || string(contents) != k.Rendering.String()
	k.Complete = k.Complete && (k.Unwritten || !e.unwritten)
	e.startedAt = time.Now()
	e.recordWorkers(now)
	e.supervise()
	e.log.Info("HAProxy serves on", "pid", k.Master.PID, "since", k.Started)
}

// Detach ends the engine's watch; see Engine.
func (e *engine) Detach() error {
	back, err := e.lock(context.Background())
	if err != nil {
		return err
	}
	defer func() { e.unwatch(); back(); e.watching.Wait() }()
	if e.ended {
		return nil
	}
	e.ended = true
	if e.running == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	e.readAllCounts(ctx) // before the watch ends, which lets workers go
	return e.save()
}

// Stop ends HAProxy, and removes its files; see Engine.
func (e *engine) Stop(ctx context.Context) error {
	e.unwatch() // first: a start that the watch has begun holds the lock until HAProxy serves, and ends with the watch
	back, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { back(); e.watching.Wait() }()
	if e.ended {
		return nil
	}
	e.ended = true
	if e.unsupported != nil {
		return nil // nothing was put there
	}
	return errors.Join(e.stopProxy(ctx), e.remove())
}
