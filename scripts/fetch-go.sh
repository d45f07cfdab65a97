#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the Go toolchain that go.mod names, with a go that is too old to do so itself (before 1.21), as the module
# golang.org/toolchain from the Go module proxy; the checksum database verifies it like any module. The steps after the
# download are those of cmd/go/internal/toolchain: a module's files have no exec bits, and its nested go.mod files are
# named _go.mod.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd / # outside any module, whose go.mod an old go may not understand

old=$(command -v go) || die "no go here to fetch Go $(wanted_go) with: run \`make deps\`"
have=$(go_version "$old")
policy=$("$old" env GOTOOLCHAIN 2>/dev/null)
[ -z "$policy" ] || die \
	"$old is Go $have, go.mod asks for $(least_go), and GOTOOLCHAIN=$policy forbids to fetch it" \
	"Run make with GOTOOLCHAIN=auto, or put a newer go first in PATH."

want=$(wanted_go)
to=$(fetched_go)
printf '%s is Go %s; fetching Go %s to %s\n' "$old" "$have" "$want" "$to"

mkdir -p "$(dirname "$to")"
work=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$work"' EXIT
module="golang.org/toolchain@v0.0.1-go$want.$("$old" env GOHOSTOS)-$("$old" env GOHOSTARCH)"
# A separate module cache: the toolchain is moved out of it, and the rest is removed.
(cd "$work" && GO111MODULE=on GOWORK=off GOFLAGS=-modcacherw GOMODCACHE="$work/mod" "$old" mod download "$module") ||
	die "go could not download $module: is the Go module proxy reachable?"

tree=$work/mod/$module
chmod -R u+w "$tree"
find "$tree/bin" "$tree/pkg/tool" -type f -exec chmod +x {} +
find "$tree" -name _go.mod -execdir mv _go.mod go.mod ';'
[ "$(GOTOOLCHAIN=local go_version "$tree/bin/go")" = "$want" ] || die "the Go that came as $module does not run on this machine"

rm -rf "$to"
mv "$tree" "$to"
