#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
if [ "$1" = purge ]; then
	if [ -x /usr/bin/deb-systemd-helper ]; then
		deb-systemd-helper purge jeoul.service jeoul-agent.service >/dev/null || true
	fi
	# systemd keeps the directory of a service's notes over a stop.
	rm -rf /run/jeoul /etc/jeoul
	rmdir /sys/fs/bpf/jeoul 2>/dev/null || true
	if getent passwd jeoul >/dev/null; then
		userdel jeoul >/dev/null || true
	fi
fi
