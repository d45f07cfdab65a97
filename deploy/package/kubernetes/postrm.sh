#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
if [ "$1" = purge ]; then
	if [ -x /usr/bin/deb-systemd-helper ]; then
		deb-systemd-helper purge jeoul-kubernetes.service >/dev/null || true
	fi
	# systemd keeps them over a stop. They may have private keys.
	rm -rf /run/jeoul-kubernetes /var/lib/jeoul-kubernetes
fi
