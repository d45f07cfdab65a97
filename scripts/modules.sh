#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# modules.sh [ARCH]: fetches the packages of other modules that the program uses, and compiles them for ARCH. From
# nothing that takes a minute of two cores. It needs neither a Debian package nor a generated file, so it runs while
# those are fetched or made. A second run waits for the first, and then finds the work done.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

go=${GO:-$TREE/scripts/go.sh}
cd "$TREE"
mkdir -p bin
# bpf2go comes first, because the programs wait for it.
flock bin/.bpf2go.lock "$go" run github.com/cilium/ebpf/cmd/bpf2go -help >/dev/null 2>&1 || true

# The list may be made while files are being generated, so -e: a package that lacks one is no error.
others='{{with .Module}}{{if not .Main}}{{$.ImportPath}}{{end}}{{end}}'
export GOARCH=${1:-}
mapfile -t packages < <("$go" list -e -deps -f "$others" ./cmd/jeoul)
exec flock bin/.modules.lock "$go" build "${packages[@]}"
