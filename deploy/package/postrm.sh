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
	# systemd keeps the directories of a service over a stop. Journals of `jeoul tune` stay. jeoul-kubernetes may be
	# purged later or never, and its private keys would be the next user's that gets the number of this one.
	rm -rf /run/jeoul /run/jeoul-kubernetes /var/lib/jeoul-kubernetes /etc/jeoul /var/lib/jeoul/sources
	rmdir /run/jeoul-labs 2>/dev/null || true
	rmdir /var/lib/jeoul 2>/dev/null || true
	rmdir /sys/fs/bpf/jeoul 2>/dev/null || true
	if getent passwd jeoul >/dev/null; then
		userdel jeoul >/dev/null || true
	fi
fi
