#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The services of the cluster stay with the balancer: `jeoul apply --owner kubernetes` with an empty list removes them.
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	deb-systemd-invoke stop jeoul-kubernetes.service >/dev/null || true
fi
