#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# other-build.sh OUT: builds jeoul from the same sources as another build whose flow tables have a different layout, for
# tests of upgrades: bpf/ compiled with OTHER_LAYOUT. The tree stays unchanged.
set -euo pipefail

[ $# = 1 ] || { printf 'usage: %s OUT\n' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "$1")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# The programs are compiled in the copy; everything else is built unchanged in its place.
cp -r "$root"/{bpf,scripts,go.mod,go.sum} "$copy"
mkdir -p "$copy/internal/balancer"
cp -r "$root/internal/balancer/datapath" "$copy/internal/balancer"
go=${GO:-scripts/go.sh}
cd "$copy"
JEOUL_BPF_FLAGS=-DOTHER_LAYOUT "$go" generate -run 'bpf/balancer/jeoul_' ./internal/balancer/datapath/{objects,traced}
cd "$root"
overlay=$(for file in internal/balancer/datapath/{objects,traced}/*_bpfel.{go,o.gz}; do printf ',"%s":"%s"' "$root/$file" "$copy/$file"; done)
printf '{"Replace":{%s}}\n' "${overlay#,}" >"$copy/overlay.json"
"$go" build -buildvcs=false -overlay "$copy/overlay.json" -o "$out" ./cmd/jeoul
