#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# generate.sh [ARCH]: makes the Go code and objects of the eBPF programs, of several packages at once, and at the same
# time compiles for ARCH the packages of other modules that the program uses: see modules.sh.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

go=${GO:-$TREE/scripts/go.sh}
cd "$TREE"
mkdir -p bin
# Compiled once, here or by a running modules.sh. A failure here also happens below, with the reason.
flock bin/.bpf2go.lock "$go" run github.com/cilium/ebpf/cmd/bpf2go -help >/dev/null 2>&1 || true

scripts/modules.sh "$@" &
trap 'kill $! 2>/dev/null || true' EXIT
grep -rl --include=generate.go '^//go:generate' internal | xargs -n 1 dirname | sort |
	xargs -P "$(nproc)" -I {} "$go" generate ./{}
# If it fails, so does the build after this, with the reason.
wait || true
trap - EXIT
