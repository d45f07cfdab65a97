#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh TIME: runs every fuzz target of the tree for TIME; go runs only one
# target at a time by itself. A failing input is kept by go under testdata/fuzz.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

time=$1
go=${GO:-$TREE/scripts/go.sh}

# `go test -list` prints a package's targets and then "ok PACKAGE TIME".
targets=$("$go" test -list='^Fuzz' ./... |
	awk '/^Fuzz/ { names[n++] = $1 } $1 == "ok" { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }')
[ -n "$targets" ] || die "no fuzz target found"

[ "$(id -u)" = 0 ] || printf 'Not root: targets that feed eBPF programs skip.\n'

while read -r package target; do
	printf '== %s %s for %s\n' "$package" "$target" "$time"
	"$go" test -run='^$' -fuzz="^$target\$" -fuzztime="$time" "$package"
done <<<"$targets"
