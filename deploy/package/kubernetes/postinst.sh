#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

[ "$1" = configure ] || exit 0
unit=jeoul-kubernetes.service
deb-systemd-helper unmask "$unit" >/dev/null || true
if deb-systemd-helper --quiet was-enabled "$unit"; then
	deb-systemd-helper enable "$unit" >/dev/null || true
else
	deb-systemd-helper update-state "$unit" >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
	if [ -z "$2" ]; then
		deb-systemd-invoke start "$unit" >/dev/null || true
	else
		deb-systemd-invoke try-restart "$unit" >/dev/null || true
	fi
fi
