#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# generate.sh [ARCH]: makes the Go code and objects of the eBPF programs, of several packages at once, and meanwhile
# compiles for ARCH what the program takes of other modules: see modules.sh.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

go=${GO:-$TREE/scripts/go.sh}
cd "$TREE"
mkdir -p bin
# Compiled once, here or by a run of modules.sh that is under way. What fails here fails below as well, with the reason.
flock bin/.bpf2go.lock "$go" run github.com/cilium/ebpf/cmd/bpf2go -help >/dev/null 2>&1 || true

scripts/modules.sh "$@" &
trap 'kill $! 2>/dev/null || true' EXIT
grep -rl --include=generate.go '^//go:generate' internal | xargs -n 1 dirname | sort |
	xargs -P "$(nproc)" -I {} "$go" generate ./{}
# If it fails, so does the build after this, with the reason.
wait || true
trap - EXIT
