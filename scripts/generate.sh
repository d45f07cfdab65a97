#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# generate.sh [ARCH]: makes the Go code and objects of the eBPF programs, of several packages at once, and meanwhile
# fetches and compiles for ARCH what the program takes of other modules. From nothing both take a minute of processor
# and more, and no generated file goes into the latter.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

go=${GO:-$TREE/scripts/go.sh}
cd "$TREE"
# What both need is compiled once: by this line. What fails here fails below as well, with the reason.
"$go" run github.com/cilium/ebpf/cmd/bpf2go -help >/dev/null 2>&1 || true

# The list is made while generated files come, so -e: a package of which one is not there yet is no error.
ahead() {
	local packages others='{{with .Module}}{{if not .Main}}{{$.ImportPath}}{{end}}{{end}}'
	export GOARCH=${1:-}
	mapfile -t packages < <("$go" list -e -deps -f "$others" ./cmd/jeoul)
	exec "$go" build "${packages[@]}"
}

ahead "$@" &
trap 'kill $! 2>/dev/null || true' EXIT
grep -rl --include=generate.go '^//go:generate' internal | xargs -n 1 dirname | sort |
	xargs -P "$(nproc)" -I {} "$go" generate ./{}
# If it fails, so does the build after this, with the reason.
wait || true
trap - EXIT
