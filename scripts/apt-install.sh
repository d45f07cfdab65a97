#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# apt-install.sh PACKAGE...: the part of `make deps` that needs root. It installs the packages, and prevents the
# services of some of them from taking this machine's ports, both now and at the next boot.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

services=(nginx haproxy keepalived named ssh prometheus bird frr)
policy=/usr/sbin/policy-rc.d
mark='Made by make deps of jeoul for the time of one installation'
ours=

unit_exists() {
	[ -e "/lib/systemd/system/$1.service" ] || [ -e "/etc/init.d/$1" ]
}

# hold_services prevents invoke-rc.d from starting any service. A policy that the machine already has belongs to its
# administrator and stays unchanged; a policy that a killed run of this script left is taken over.
hold_services() {
	if [ -e "$policy" ] && ! grep -q "$mark" "$policy"; then
		return
	fi
	ours=yes
	printf '#!/bin/sh\n# %s.\nexit 101\n' "$mark" >"$policy"
	chmod 755 "$policy"
}

release_services() {
	[ -z "$ours" ] || rm -f "$policy"
}

# disable NAME: the service does not start at boot, and is stopped if the machine's own policy let it start. Only for
# services that this run installed.
disable() {
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now "$1.service"
	else
		update-rc.d "$1" disable >/dev/null 2>&1
	fi
	printf '%s: installed, not running and not started at boot (to change that: systemctl enable --now %s).\n' "$1" "$1"
}

new=()
for service in "${services[@]}"; do
	unit_exists "$service" || new+=("$service")
done

finish() {
	local service
	release_services
	for service in ${new[@]+"${new[@]}"}; do
		unit_exists "$service" || continue
		disable "$service" || printf '%s was installed and may be running; stop it yourself.\n' "$service" >&2
	done
}
trap finish EXIT
# With a trap, bash lets apt-get end first; otherwise a signal would remove the policy while packages are still being
# set up.
trap 'exit 1' INT TERM HUP
hold_services

# needrestart, if installed, would otherwise ask on the terminal.
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
apt=(apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
"${apt[@]}" update ||
	printf 'apt-get update failed for some source; going on with the lists that are here.\n' >&2
"${apt[@]}" install --yes --no-install-recommends "$@" ||
	die "apt-get could not install: $*" "Its own message is above; put that right and run \`make deps\` again."
