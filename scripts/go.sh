#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a go that can build this tree: see find_go in lib.sh. The Makefile calls
# this in place of `go`.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

go=$(find_go) || die "no Go that can build this (go.mod asks for $(least_go)): run \`make deps\`"

# Git rejects a tree of another owner, and then the version stamp makes `go build` and `go list` fail. A user who runs
# make in a tree runs that tree's code anyway, so these commands trust the tree.
if [ "$(stat -c %u "$TREE")" != "$(id -u)" ]; then
	n=${GIT_CONFIG_COUNT:-0}
	export "GIT_CONFIG_KEY_$n=safe.directory" "GIT_CONFIG_VALUE_$n=$TREE" GIT_CONFIG_COUNT=$((n + 1))
fi
# Otherwise the stamp's `git status` may rewrite the user's .git/index as root.
export GIT_OPTIONAL_LOCKS=0

# Compilers run for seconds: collecting garbage a quarter as often saves a fifth of their time. Not for commands that
# run tests or programs, which would inherit it.
case ${1:-} in
build | generate | install | vet) export GOGC="${GOGC:-400}" ;;
esac

# writable DIRECTORY: can files be made in it, or can it be created?
writable() {
	local dir=$1
	while [ ! -e "$dir" ]; do
		dir=$(dirname "$dir")
	done
	[ -w "$dir" ]
}

# On a read-only home directory, Go's build cache goes into the tree, and modules as well if there are none yet.
{
	read -r cache
	read -r modules
} < <("$go" env GOCACHE GOMODCACHE)
if ! writable "$cache"; then
	export GOCACHE=$TREE/bin/go-cache
	if ! writable "$modules" && [ ! -d "$modules/cache/download" ]; then
		export GOMODCACHE=$TREE/bin/go-modules
	fi
fi

exec "$go" "$@"
