#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

# Before the files come, of which one is the group's.
if ! getent passwd jeoul >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin jeoul
fi
