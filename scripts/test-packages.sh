#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-packages.sh DEB [SUITE...]: installs the package in a tree of each of these releases of Debian (bookworm and
# trixie), which the release's systemd has booted in a container on this machine's kernel, and uses it there:
# packages/guest.sh has the steps. The tests of the proxy engine, which make test-packages has compiled, run there too,
# with the release's HAProxy. apt fetches a tree's files, which stay in the cache. The container has a separate network.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

deb=$(realpath "$1")
shift
suites=("$@")
[ $# -gt 0 ] || suites=(bookworm trixie)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/jeoul/trees
contents=systemd-sysv,dbus,udev,iproute2,curl,procps,busybox-static,kmod,init,haproxy
limit=${JEOUL_LIMIT:-10m}

[ "$(id -u)" = 0 ] || die "a container is run as root" "sudo make test-packages"
for program in mmdebstrap systemd-nspawn; do
	command -v "$program" >/dev/null && continue
	"$TREE/scripts/apt-install.sh" mmdebstrap systemd-container
	break
done
mkdir -p "$cache"
work=$(mktemp -d)
container=
trap '[ -z "$container" ] || stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# archive SUITE: the path of the suite's tree, which depends on its contents.
archive() { printf '%s/%s-%s.tar' "$cache" "$1" "$(cksum <<<"$contents" | cut -d ' ' -f 1)"; }

# tree SUITE: makes the suite's tree, unless it exists. HAProxy comes without its own service.
tree() {
	local made
	made=$(archive "$1")
	[ ! -e "$made" ] || return 0
	mmdebstrap --quiet --format=tar --variant=minbase --aptopt='Acquire::Languages "none"' --include="$contents" \
		--customize-hook="rm -f \"\$1/etc/systemd/system/multi-user.target.wants/haproxy.service\"" "$1" "$made.new" >&2
	mv "$made.new" "$made"
}

# prepare SUITE: a tree with the package, and the same with a later version; nothing of another suite is left.
prepare() {
	rm -rf "$work/root" "$work/later" "$work/log"
	mkdir "$work/root"
	tar --extract --file "$(archive "$1")" --directory "$work/root" --exclude='./dev/*'
	mkdir "$work/root/packages"
	cp "$deb" "$work/root/packages/first.deb"
	dpkg-deb -R "$deb" "$work/later"
	sed -i 's/^Version: .*/&+upgrade/' "$work/later/DEBIAN/control"
	dpkg-deb -Zgzip -z1 -b "$work/later" "$work/root/packages/second.deb" >/dev/null
	install -m755 "$TREE/scripts/packages/guest.sh" "$work/root/usr/local/sbin/try-packages"
	cp -r "$TREE/bin/proxy.test" "$TREE/internal/balancer/proxy/testdata" "$work/root/packages"
}

# start boots the tree, and waits until systemd is ready.
start() {
	local end=$((SECONDS + 120))
	SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 systemd-nspawn --directory="$work/root" --boot --register=no --keep-unit \
		--private-network --capability=all --system-call-filter='bpf perf_event_open' \
		--machine="jeoul-test-$$" --console=pipe </dev/null >"$work/console" 2>&1 &
	container=$!
	until inside=$(leader) && nsenter --target "$inside" --all systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; do
		[ "$SECONDS" -lt "$end" ] && kill -0 "$container" 2>/dev/null || return 1
		sleep 1
	done
	# A container has no bpf file system of its own, and another boot_id than services with their own /proc see: a
	# journal of another boot does not count.
	nsenter --target "$inside" --all sh -c 'mkdir -p /sys/fs/bpf && mount -t bpf -o mode=700 bpf /sys/fs/bpf
		while umount /proc/sys/kernel/random/boot_id 2>/dev/null; do :; done'
}

# leader prints the process ID of the container's systemd.
leader() {
	local monitor
	monitor=$(pgrep -P "$container" -f systemd-nspawn | head -n 1)
	pgrep -P "${monitor:-$container}" -x systemd
}

# stop ends the container: on a signal, nspawn asks its systemd first, which may take forever.
stop() {
	local end=$((SECONDS + 60))
	kill "$container" 2>/dev/null || true
	while kill -0 "$container" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do
		sleep 1
	done
	kill -KILL "$inside" "$container" 2>/dev/null || true
	wait "$container" || true
	container=
}

# try: fails if a step failed in the tree that was prepared, or the container did not boot, or did not end.
try() {
	if start; then
		timeout "$limit" nsenter --target "$inside" --all /usr/local/sbin/try-packages 2>&1 | tee "$work/log" || true
	else
		cat "$work/console"
	fi
	stop
	[ -e "$work/log" ] && grep -q '^packages ended with 0' "$work/log"
}

failed=()
for suite in "${suites[@]}"; do
	printf '== %s, %s KiB, on %s\n' "$(basename "$deb")" "$(($(stat -c %s "$deb") / 1024))" "$suite"
	tree "$suite"
	# Not in try, after which || stands: -e does not count there.
	prepare "$suite"
	try || failed+=("$suite")
done
[ ${#failed[@]} = 0 ] || die "the package failed on: ${failed[*]}" "see above"
