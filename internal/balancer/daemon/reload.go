// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/control"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/metrics"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/resident"
	"github.com/jeoul/jeoul/internal/host/systemd"
)

// reloader reads the daemon's configuration file again, for a signal and for the API alike.
type reloader struct {
	sources *sources.Sources
	metrics *metrics.Metrics
	service *systemd.Manager
	memory  *resident.Releaser
	files   *durable.Files
	log     *slog.Logger
}

// reload also logs and counts the result, with the name of the one who has asked for it. Errors: ops.ErrNotReloaded,
// ops.ErrStopping, the context's.
func (r *reloader) reload(ctx context.Context, by string) (ops.Reloaded, error) {
	path, about := r.sources.Path(), events.About{Kind: events.KindReload, By: by}.Attr()
	r.log.Info("reading "+path+" again", "by", by, about)
	r.service.Reloading()
	defer r.service.Ready()
	defer r.memory.Changed()
	err := r.sources.Reload(ctx)
	if errors.Is(err, control.ErrStopped) {
		return ops.Reloaded{}, ops.ErrStopping
	}
	r.metrics.Reloaded(err)
	if err == nil {
		r.log.Info("reloaded "+path, about)
		return ops.Reloaded{File: path, Warnings: r.notDurable()}, nil
	}
	if ctx.Err() != nil {
		return ops.Reloaded{}, ctx.Err()
	}
	for line := range strings.Lines(err.Error()) {
		r.log.Error(strings.TrimRight(line, "\n"), about)
	}
	r.log.Error(ops.ErrNotReloaded.Error(), about)
	return ops.Reloaded{}, fmt.Errorf("%v\n%w", err, ops.ErrNotReloaded)
}

// notDurable names the parts of the state in force that the next process may not know.
func (r *reloader) notDurable() (warnings []string) {
	for _, fault := range r.files.Faults() {
		warnings = append(warnings, "in force, and not durable yet: "+fault.String())
	}
	return warnings
}

// onSignal reloads at each signal until the context ends.
func (r *reloader) onSignal(ctx context.Context, hangup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		r.reload(ctx, "SIGHUP")
	}
}
