// SPDX-License-Identifier: Apache-2.0

// Package systemd notifies the service manager that started this process of the process's state (sd_notify(3)), with
// go-systemd. Without a service manager nothing is sent.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Manager is systemd, if it has started this process as Type=notify.
type Manager struct{ log *slog.Logger }

// New returns the service manager of this process. Messages that cannot be sent are logged.
func New(log *slog.Logger) *Manager { return &Manager{log} }

// Status sets the line that `systemctl status` shows.
func (m *Manager) Status(line string) { m.send("STATUS=" + line) }

// Stopping notifies that the process is about to end.
func (m *Manager) Stopping() { m.send(daemon.SdNotifyStopping) }

// send sends lines of sd_notify(3).
func (m *Manager) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn(fmt.Sprintf("telling systemd %q: %v", state, err))
	}
}

// Ready notifies that the process is ready to serve.
func (m *Manager) Ready() { m.send(daemon.SdNotifyReady) }

// Reloading notifies that another configuration is about to be applied; Ready ends the reload. By the timestamp,
// systemd tells this reload from an earlier one (Type=notify-reload).
func (m *Manager) Reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		m.log.Warn(fmt.Sprintf("telling systemd of the reload: reading the clock: %v", err))
		return
	}
	m.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000))
}

// RunWatchdog notifies the watchdog, if the unit has one, that this process works, as long as responds returns no
// error. It returns nil when responds fails or the context ends.
func (m *Manager) RunWatchdog(ctx context.Context, responds func(context.Context) error) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn(fmt.Sprintf("the watchdog of systemd is not told that the daemon works: %v", err))
	}
	if err != nil || interval <= 0 {
		return nil
	}
	// Twice per timeout, so that a single late notification is not mistaken for a hang.
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		if responds(ctx) != nil || ctx.Err() != nil {
			return nil
		}
		m.send(daemon.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
