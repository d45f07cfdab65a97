#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PACKAGE...: runs these packages' tests, in this order as far as cores
# are free, with root's rights; TESTFLAGS has more flags for `go test`.
#
# Tests of several packages share the machine, and measure on it. Up to eight that
# failed are run once more when all others have ended: one that fails then too has
# failed. One that passes then does not fail the run, for a stalled core is no
# fault of the balancer; it is named at the end, because what it assumes of the
# machine is a fault of the test.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

sum=$("$GO" env GOPATH)/bin/gotestsum
[ "$("$sum" --version 2>/dev/null)" = "gotestsum version ${GOTESTSUM##*@}" ] || "$GO" install "$GOTESTSUM"

# gotestsum runs the `go` that PATH has first; $GO may look for another one there.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '#!/bin/sh\nPATH=%q exec %q "$@"\n' "$PATH" "$(realpath "$(command -v "$GO")")" >"$dir/go"
chmod +x "$dir/go"

read -ra flags <<<"${TESTFLAGS:-}"
format=standard-quiet
[[ " ${flags[*]} " != *' -v '* ]] || format=standard-verbose
status=0
# Vetted by the Makefile, by all of vet's checks. Tests wait for a quarter of their
# time, so there is one package more at a time than there are cores.
PATH=$dir:$PATH JEOUL_TEST_ROOT=1 "$sum" --format="$format" --hide-summary=skipped \
	--packages="$*" --rerun-fails=1 --rerun-fails-max-failures=8 --rerun-fails-report="$dir/again" -- \
	-vet=off -count=1 -timeout=30m -p=$(($(nproc) + 1)) -exec="'$TREE/scripts/as-root.sh'" "${flags[@]}" || status=$?
if [ -s "$dir/again" ]; then
	printf 'Failed beside the others, and were run once more by themselves:\n'
	cat "$dir/again"
fi
exit "$status"
