#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh TIME PACKETS: runs every fuzz target of the tree for TIME, because go itself runs only one target at a time.
# go keeps a failing input under testdata/fuzz. Then PACKETS random packets pass through the data plane, in each hook,
# and through the model of it; JEOUL_FUZZ_SEED selects the packets, and a failure prints how to reproduce it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

time=$1
packets=$2
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

seed=${JEOUL_FUZZ_SEED:-$RANDOM$RANDOM}
printf '== %s random packets for each hook, seed %s\n' "$packets" "$seed"
JEOUL_FUZZ_PACKETS=$packets JEOUL_FUZZ_SEED=$seed "$go" test -count=1 -timeout=0 -v -run='^TestRandomPackets$' ./internal/balancer/datapath |
	grep -vE '^ *=== '
