# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The shared parts of the other scripts; sourced, never run.

# Without this, a function that is called as $(function) goes on after a failed command, whatever -e says.
shopt -s inherit_errexit

TREE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# A normal user's PATH on Debian lacks the sbin directories, which contain nginx, haproxy, ethtool and tcpdump.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# die LINE...: the first line says what failed and why, the others what to do.
die() {
	printf 'error: %s\n' "$1" >&2
	[ $# = 1 ] || printf '  %s\n' "${@:2}" >&2
	exit 1
}

# install_packages PACKAGE...: installs Debian packages by root. sudo would pass no proxy of the user on to apt-get.
install_packages() {
	local name proxies=()
	for name in http_proxy https_proxy no_proxy; do
		[ -z "${!name:-}" ] || proxies+=("$name=${!name}")
	done
	"$TREE/scripts/as-root.sh" env "${proxies[@]}" "$TREE/scripts/apt-install.sh" "$@"
}

# debian_arch prints Debian's and Go's name of this machine's architecture.
debian_arch() {
	case $(uname -m) in
	x86_64) echo amd64 ;;
	aarch64) echo arm64 ;;
	*) uname -m ;;
	esac
}

# wanted_go prints the Go version to fetch if none is good enough, and least_go the oldest that can build the tree; both
# are in go.mod.
wanted_go() {
	awk '$1 == "toolchain" { sub(/^go/, "", $2); t = $2 } $1 == "go" { g = $2 } END { print t ? t : g }' "$TREE/go.mod"
}

least_go() {
	awk '$1 == "go" { print $2 }' "$TREE/go.mod"
}

# fetched_go is the directory in which scripts/fetch-go.sh puts a toolchain: in the user's cache, so that all clones
# share it and `make clean` keeps it.
fetched_go() {
	[ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || die "neither HOME nor XDG_CACHE_HOME is set: Go needs one of them for its cache"
	printf '%s/jeoul/go%s\n' "${XDG_CACHE_HOME:-$HOME/.cache}" "$(wanted_go)"
}

# version_at_least A B: is version A equal to or later than B?
version_at_least() {
	[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# go_version GO: the version that GO has outside any module (which honours the
# user's GOTOOLCHAIN); nothing if it cannot run.
go_version() {
	(cd / && "$1" env GOVERSION 2>/dev/null) | sed -e 's/^go//' -e 's/[- ].*//'
}

# go_good GO: can GO build this tree, by itself or because it may fetch the
# toolchain that go.mod names?
go_good() {
	local have
	[ -x "$1" ] || return 1
	have=$(go_version "$1")
	case $have in
	'') return 1 ;;
	devel*) return 0 ;;
	esac
	version_at_least "$have" "$(least_go)" && return 0
	# Go 1.21 and later support GOTOOLCHAIN and fetch the toolchain that go.mod asks for, if allowed.
	case $(cd / && "$1" env GOTOOLCHAIN 2>/dev/null) in
	auto | *+auto | path | *+path) return 0 ;;
	esac
	return 1
}

# find_go prints the first good go: in PATH, in the directory of the official archive (which sudo's PATH leaves out), or
# fetched by this tree.
find_go() {
	local go
	for go in "$(command -v go || true)" /usr/local/go/bin/go "$(fetched_go)/bin/go"; do
		if [ -n "$go" ] && go_good "$go"; then
			printf '%s\n' "$go"
			return
		fi
	done
	return 1
}
