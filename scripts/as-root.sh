#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# as-root.sh COMMAND...: runs the command with root's rights, through sudo if necessary, in the same directory, with
# this PATH and TMPDIR, and the JEOUL_* variables. `go test -exec` runs test binaries through it.
#
# as-root.sh --check WHAT: only checks that this will work, asks for the password now, and otherwise says that WHAT
# needs root.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

refuse() {
	die "$1 needs root, and you are $(id -un): $2"
}

if [ "${1:-}" = --check ]; then
	[ "$(id -u)" = 0 ] && exit
	command -v sudo >/dev/null || refuse "$2" "sudo is not installed; run it as root"
	sudo -n true 2>/dev/null && exit
	[ -t 0 ] || refuse "$2" "sudo wants a password and there is no terminal to ask on; run it as root"
	printf '%s needs root; sudo may ask for your password.\n' "$2"
	sudo -v || refuse "$2" "sudo does not let you; run it as root"
	exit
fi

export PATH
[ "$(id -u)" = 0 ] && exec "$@"

pass=("PATH=$PATH" ${TMPDIR:+"TMPDIR=$TMPDIR"} ${GOGC:+"GOGC=$GOGC"})
for name in ${!JEOUL_@}; do
	pass+=("$name=${!name}")
done
exec sudo env "${pass[@]}" "$@"
