#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

[ "$1" = configure ] || exit 0
for unit in jeoul.service jeoul-agent.service; do
	deb-systemd-helper unmask "$unit" >/dev/null || true
	if deb-systemd-helper --quiet was-enabled "$unit"; then
		deb-systemd-helper enable "$unit" >/dev/null || true
	else
		deb-systemd-helper update-state "$unit" >/dev/null || true
	fi
done
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
	if [ -z "$2" ]; then
		# The first time: what has only comments for a configuration does nothing.
		deb-systemd-invoke start jeoul.service jeoul-agent.service >/dev/null || true
	else
		# An upgrade: the data plane goes on meanwhile. Not so the agent, whose end takes the VIPs off a host under traffic.
		deb-systemd-invoke try-restart jeoul.service >/dev/null || true
		if systemctl is-active --quiet jeoul-agent.service; then
			echo "jeoul-agent goes on as the previous version. 'systemctl restart jeoul-agent' starts this one, and takes" \
				"the VIPs off this host meanwhile: drain its backends first."
		fi
	fi
fi
