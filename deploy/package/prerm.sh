#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

[ "$1" = remove ] || exit 0
if [ -d /run/systemd/system ]; then
	deb-systemd-invoke stop jeoul.service jeoul-agent.service >/dev/null || true
fi
# What a killed daemon has left is not the service's to stop.
/usr/bin/jeoul detach --all >/dev/null || true
