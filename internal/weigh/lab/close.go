// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
)

// closeTimeout bounds the waits while a lab is closed.
const closeTimeout = claim.Bound

// Close kills every process of the lab, and removes its namespaces, its mounts and its directory. The error names what
// it could not remove. Later calls return the result of the first.
func (l *Lab) Close() error {
	l.closeOnce.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Lab) close() error {
	switch {
	case l.remote != nil:
		return l.closeRemote()
	case l.local != nil:
		return l.closeLocal()
	}
	if l.lock == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	errs := []error{l.killAll(ctx)}
	if l.usage.Meter != nil {
		errs = append(errs, l.usage.Meter.Close())
	}
	if l.fastPath != nil {
		errs = append(errs, l.fastPath.Close())
	}
	if l.wires != nil {
		errs = append(errs, l.wires.Close())
	}
	for _, h := range l.Hosts() {
		h.leave()
	}
	r := claim.Record{}
	if l.ownDir {
		r.Dir = l.Dir
	}
	errs = append(errs, claim.Remove(ctx, l.ID, r))
	if err := errors.Join(errs...); err != nil {
		// The file stays, so that a later CleanStale tries again.
		l.lock.Release()
		return fmt.Errorf("close lab %s: %w", l.ID, err)
	}
	return l.lock.Remove()
}

// CleanStale removes the remains of labs whose owner is dead: processes, namespaces, mounts, directories, and finally
// the lock. It returns the IDs of those labs. Running labs, and everything else, are left alone.
func CleanStale(ctx context.Context) (removed []string, err error) { return claim.Clean(ctx) }

// Close ends every process that was started, with SIGTERM first, and undoes the changes to the machine.
func (h *LocalMachine) Close() error { return h.lab.Close() }

// closeRemote releases the machines.
func (l *Lab) closeRemote() error {
	var err error
	if l.remote.close != nil {
		err = l.remote.close()
	}
	for _, h := range l.Hosts() {
		h.mu.Lock()
		h.closed = true
		h.mu.Unlock()
	}
	return errors.Join(err)
}

// killAll kills all processes that were started and waits for their end.
func (l *Lab) killAll(ctx context.Context) error {
	processes := l.processes()
	for _, p := range processes {
		p.signalEnd(unix.SIGKILL)
	}
	var errs []error
	for _, p := range processes {
		select {
		case <-p.Done():
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("process %d (%s on %s) does not end", p.PID(), p.cmd.Path, p.host.Name))
		}
	}
	return errors.Join(errs...)
}
