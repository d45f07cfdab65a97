// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// changingNginx is nginx as a TCP proxy with servers that change.
type changingNginx struct {
	*runningProxy
	// write writes its configuration for services.
	write   func([]subject.Service) error
	workers int
}

// Change writes the configuration again and reloads: without its commercial API, nginx has no other method. A draining
// server is marked "down".
func (r *changingNginx) Change(ctx context.Context, services []subject.Service) error {
	if err := r.write(services); err != nil {
		return err
	}
	r.setup = r.setup.With(services)
	return r.Reload(ctx)
}

// Reload sends SIGHUP to the master, which starts new workers and lets the old ones finish. It waits until the new
// workers have taken over.
func (r *changingNginx) Reload(ctx context.Context) error {
	old, err := r.children()
	if err != nil {
		return err
	}
	if err := r.process.Process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("reloading nginx: %w", err)
	}
	return r.process.WaitUntil(ctx, func() error { return r.workersReplaced(old) })
}

// workersReplaced returns nil once the configured number of new workers runs, and all old ones are finishing or gone.
func (r *changingNginx) workersReplaced(old []int) error {
	now, err := r.children()
	if err != nil {
		return err
	}
	fresh := 0
	for _, pid := range now {
		title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		finishing := strings.Contains(string(title), "shutting down")
		switch {
		case err != nil || finishing: // ended in the meantime, or finishing
		case slices.Contains(old, pid):
			return errors.New("an old worker still accepts connections")
		// Until it sets its title, a worker is still starting.
		case strings.Contains(string(title), "worker process"):
			fresh++
		}
	}
	if fresh != r.workers {
		return fmt.Errorf("%d new workers run, not %d", fresh, r.workers)
	}
	return nil
}

// children returns the master's workers.
func (r *changingNginx) children() ([]int, error) {
	master := r.process.Process.PID()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", master, master))
	if err != nil {
		return nil, fmt.Errorf("looking for nginx's workers: %w", err)
	}
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("looking for nginx's workers: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// PIDs returns the master and all workers; the master alone if its workers cannot be determined.
func (r *changingNginx) PIDs() []int {
	workers, _ := r.children()
	return append([]int{r.process.Process.PID()}, workers...)
}

func (*changingNginx) ChangeMethod() string {
	return "each change is a new configuration and a reload (SIGHUP); a server that drains is marked down; an old worker lives " +
		"until its last connection ends (no worker_shutdown_timeout), with what it was configured with"
}
