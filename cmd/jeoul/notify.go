// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/control"
)

// serviceManager is systemd, where it has started this process as Type=notify (sd_notify(3)).
// Without it nothing is sent.
type serviceManager struct{ log *slog.Logger }

func newServiceManager(log *slog.Logger) *serviceManager { return &serviceManager{log} }

// notify sends lines of sd_notify(3).
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn(fmt.Sprintf("telling systemd %q: %v", state, err))
	}
}

// ready says that packets are balanced by the configuration.
func (m *serviceManager) ready() { notify(m.log, daemon.SdNotifyReady) }

// reloading says that another configuration is about to be put in force; ready ends it. By the
// time, systemd tells this from a message about a reload before (Type=notify-reload).
func (m *serviceManager) reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		m.log.Warn(fmt.Sprintf("telling systemd of the reload: reading the clock: %v", err))
		return
	}
	notify(m.log, fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000))
}

// attend tells the watchdog, where there is one, that this process works, for as long as what it
// asks responds. It returns when the context ends.
func (m *serviceManager) attend(ctx context.Context, responds func(context.Context) error) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn(fmt.Sprintf("the watchdog of systemd is not told that the daemon works: %v", err))
	}
	if err != nil || interval <= 0 {
		return nil
	}
	// Twice in its time: one that is late alone must not be taken for a hang.
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		if err := responds(ctx); errors.Is(err, control.ErrStopped) || ctx.Err() != nil {
			return nil
		}
		notify(m.log, daemon.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
