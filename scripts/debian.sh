#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Kernels and programs of Debian, of any suite and architecture, fetched by apt and unpacked below $cache for $arch,
# never installed; sourced by test-kernels.sh, which sets both.
# shellcheck disable=SC2154

# apt_of SUITE COMMAND...: apt with separate lists, in the cache: this machine's lists may be of another suite or
# architecture, and stay unchanged.
apt_of() {
	local suite=$1 dir=$cache/apt-$1-$arch security=
	shift
	mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
	# Nothing is installed, so that all dependencies of a package are named.
	: >>"$dir/state/status"
	case $suite in
	*-backports | sid | testing) ;;
	*) security="deb $signed http://deb.debian.org/debian-security $suite-security main" ;;
	esac
	printf '%s\n' "deb $signed http://deb.debian.org/debian $suite main" "$security" >"$dir/sources.list"
	cat >"$dir/apt.conf" <<-END
		Dir::Etc::sourcelist "$dir/sources.list";
		Dir::Etc::sourceparts "-";
		Dir::State "$dir/state";
		Dir::Cache "$dir/cache";
		APT::Architecture "$arch";
		APT::Architectures { "$arch"; };
		Dir::State::status "$dir/state/status";
		APT::Sandbox::User "";
		Acquire::Languages "none";
		Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
	END
	# In the user's language, `depends` would not find a word.
	LC_ALL=C APT_CONFIG=$dir/apt.conf "$@"
}
signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'

# depends SUITE PACKAGE WHAT: the package's dependencies that are named linux-WHAT-VERSION; WHAT is an extended regular
# expression.
depends() {
	apt_of "$1" apt-cache depends "$2" |
		awk -v name="^linux-($3)-[0-9]" '$1 == "Depends:" && $2 ~ name { print $2 }'
}

# fetch_kernel SUITE[/cards|/16k]: prints the directory of the suite's newest kernel, unpacked; an existing kernel is
# not fetched again.
fetch_kernel() {
	local suite=${1%/*} flavour=cloud-$arch image parts version dir package
	case $1 in
	*/cards) flavour=$arch ;;
	*/16k) flavour=$arch-16k ;;
	esac
	apt_of "$suite" apt-get -q update >&2 ||
		printf 'apt-get update failed for %s; going on with the lists that are here.\n' "$suite" >&2
	image=$(depends "$suite" "linux-image-$flavour" image) || true
	[ -n "$image" ] || die "$suite has no linux-image-$flavour"
	# Newer packages leave the kernel and its modules to others.
	mapfile -t parts < <(depends "$suite" "$image" 'binary|modules')
	version=$(apt_of "$suite" apt-cache show --no-all-versions "$image" | awk '$1 == "Version:" { print $2 }')
	dir=$cache/$image-$version
	if [ ! -e "$dir/complete" ]; then
		rm -rf "$dir"
		mkdir -p "$dir/deb"
		(cd "$dir/deb" && apt_of "$suite" apt-get -q download "$image" "${parts[@]}" >&2)
		for package in "$dir"/deb/*.deb; do
			dpkg-deb -x "$package" "$dir"
		done
		rm -r "$dir/deb"
		touch "$dir/complete"
	fi
	printf '%s\n' "$dir"
}

# fetch_root SUITE PACKAGE...: prints a directory with these packages and all their dependencies, unpacked and never
# configured; an existing directory is not fetched again.
fetch_root() {
	local suite=$1 dir package
	shift
	dir=$cache/root-$suite-$arch-$(printf '%s ' "$@" | sha256sum | cut -c 1-12)
	if [ ! -e "$dir/complete" ]; then
		apt_of "$suite" apt-get -q update >&2
		rm -rf "$dir"
		mkdir -p "$dir"/{deb,root/usr/{bin,sbin,lib,lib64}}
		for package in bin sbin lib lib64; do
			ln -s "usr/$package" "$dir/root/$package"
		done
		mkdir "$dir/deb/partial"
		apt_of "$suite" apt-get -q --yes --no-install-recommends --download-only -o "Dir::Cache::archives=$dir/deb" install "$@" >&2
		for package in "$dir"/deb/*.deb; do
			dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$dir/root"
		done
		rm -r "$dir/deb" "$dir"/root/usr/share/{doc,man,locale,info} "$dir"/root/usr/include 2>/dev/null || true
		touch "$dir/complete"
	fi
	printf '%s\n' "$dir/root"
}
