#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# swept.sh COMMAND...: runs a command that runs tests with root's rights, in a directory of its own for their files
# (TMPDIR). If it is interrupted, swept.sh removes what the tests leave: Ctrl-C, or the loss of the terminal, also ends
# the tests, before their cleanup, and the next laboratory, which would remove the remains of theirs, may never come.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The tests' directories are below it. It is short, because the path of a unix socket has at most 107 bytes, and others
# may enter it, because servers of the tests run as users of their own.
dir=$(mktemp -d /tmp/jt-XXXX)
chmod 755 "$dir"
mkdir -m 1777 "$dir/t"
interrupted=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
	trap '' INT TERM HUP
	if [ -n "$interrupted" ]; then
		"$TREE/scripts/as-root.sh" "$dir/sweep" "JEOUL_TEST_RUN=$dir" || true
	fi
	"$TREE/scripts/as-root.sh" rm -rf "$dir"
}
trap clean_up EXIT
trap 'interrupted=yes; exit 130' INT TERM HUP
"$GO" build -C "$TREE" -o "$dir/sweep" ./scripts/sweep

status=0
TMPDIR=$dir/t JEOUL_TEST_RUN=$dir JEOUL_TEST_ROOT=1 "$@" || status=$?
exit "$status"
